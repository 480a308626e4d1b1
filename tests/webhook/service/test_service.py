import asyncio
import base64
import datetime as dt
import hashlib
import json
import re
import ssl
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
import pytest

from certs.rotation import Policy
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from cluster.patch import Merge, apply_json_patch
from cluster.protocol import Change
from dra.wire import builtins
from runtime.controllers.election import Term
from runtime.http import Address
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.admission.test_decide import CLASS, NODE, SLICE, gpu_pod, review
from webhook.claims import template
from webhook.service.configuration_file import Source
from webhook.service.pace import Pace
from webhook.service.service import Service
from webhook.service.settings import Settings

NAMESPACE = "drawbridge-system"
QUICK = Pace(certificate=0.02, certificate_retry=0.02, retry=0.01)
# Each renewal is a write that wakes every watch of the embedded cluster: at once for a waiting replica, and no more often.
TERM = Term(retry=0.2)


def plain(kind, api_version, obj):
    return {"apiVersion": api_version, "kind": kind} | builtins(obj)


@pytest.fixture
def cluster():
    made = Embedded()
    fill(made)
    return made


def fill(made):
    made.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    made.load([plain("DeviceClass", "resource.k8s.io/v1", CLASS), plain("ResourceSlice", "resource.k8s.io/v1", SLICE)])
    made.load([plain("Node", "v1", NODE)])


@asynccontextmanager
async def running(cluster, source=None, **settings):
    free = Address("127.0.0.1", 0)
    usual = {"identity": "a", "names": ("127.0.0.1",), "listen": free, "metrics": free, "notice": 0.0}
    usual |= {"sweep_every": 0.05, "term": TERM}
    service = Service(cluster, source or Source(), Settings(**usual | settings))
    stop, heard = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(service.run(stop, lambda *where: heard.set_result(where)))
    try:
        done, _ = await asyncio.wait({task, heard}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert heard in done, task
        address, metrics = heard.result()
        yield SimpleNamespace(service=service, address=address, metrics=metrics, task=task)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def trust(cluster):
    secret = await cluster.get(resources.SECRETS, "drawbridge", NAMESPACE)
    return ssl.create_default_context(cadata=base64.b64decode(secret.data["ca.crt"]).decode())


async def post(cluster, address, obj, path="mutate", **more):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=await trust(cluster))) as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(f"https://{address}/{path}", data=review(obj, **more), headers=headers) as response:
            return json.loads(await response.text())["response"]


async def text(url, context=None):
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context or True)) as session,
        session.get(url) as response,
    ):
        return response.status, await response.text()


async def test_a_process_that_says_it_listens_decides_with_full_knowledge(cluster):
    async with running(cluster) as here:
        answer = await post(cluster, here.address, gpu_pod())
        assert answer["patchType"] == "JSONPatch"
        status, body = await text(f"https://{here.address}/readyz", await trust(cluster))
        assert (status, body) == (200, "[+]cluster ok\n[+]certificate ok\n")


async def test_a_controller_says_on_its_metrics_port_whether_it_is_ready_and_what_it_has_set_aside(cluster):
    async with running(cluster, reviews=False) as here:
        where = f"http://{here.metrics}/readyz"
        assert await text(where) == (200, "[+]cluster ok\n[+]certificate ok\n")
        here.service.quarantine.hold(("deployments.apps", "default", "hostile"), RecursionError("too deep"))
        assert "hostile" not in (await text(where))[1]
        status, told = await text(f"{where}?verbose")
        assert status == 200, "all replicas would have the same, so none of them leaves the Service"
        assert "[!]objects worked on: set aside: deployments.apps default/hostile: RecursionError: too deep" in told
        assert "drawbridge_quarantined_objects 1.0" in (await text(f"http://{here.metrics}/metrics"))[1]


async def test_the_whole_way_from_a_review_to_a_template(cluster):
    async with running(cluster) as here:
        answer = await post(cluster, here.address, gpu_pod(), namespace="default")
        stored = apply_json_patch(gpu_pod() | {"metadata": {"name": "p", "namespace": "default"}}, tuple(json.loads(base64.b64decode(answer["patch"]))))  # fmt: skip
        await cluster.create(resources.PODS.raw, stored, "default")
        name = stored["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]

        async def made():
            page = await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)
            return [item.metadata.name for item in page.items] == [name]

        await until(made)


async def test_a_grace_shorter_than_the_usual_look_is_kept_too(cluster):
    spec = {"spec": {"devices": {}}}
    left = template.object_of(template.name_of(spec), spec["spec"], "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES, left, "default")
    async with running(cluster, sweep_every=3600.0, sweep_after=0.0):

        async def swept():
            return not (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items

        await until(swept)


async def test_metrics_show_decisions_stock_and_certificate(cluster):
    async with running(cluster) as here:
        await post(cluster, here.address, gpu_pod())
        _, shown = await text(f"http://{here.metrics}/metrics")
        for line in (
            'drawbridge_decisions_total{dialect="nvidia",mode="enforce",outcome="translated"} 1.0',
            'drawbridge_reviews_total{mode="enforce",outcome="translated",path="/mutate"} 1.0',
            "drawbridge_configuration_good 1.0",
            "drawbridge_stock_age_seconds",
        ):
            assert line in shown
        days = next(
            float(line.split()[1]) for line in shown.splitlines() if line.startswith("drawbridge_certificate_days")
        )
        assert 89 < days < 91


async def test_a_webhook_without_controllers_waits_for_the_secret_and_writes_nothing(cluster):
    looked = asyncio.Event()

    class ReadOnly:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            assert name in ("get", "list", "watch", "server"), f"a webhook must not {name}"
            if name == "get":  # the Secret is all that it gets; everything else it watches
                looked.set()
            return getattr(self._inner, name)

    async with asyncio.TaskGroup() as group:
        started = asyncio.Event()

        async def answer():
            async with running(ReadOnly(cluster), controllers=False, authority=False) as here:
                started.set()
                assert (await post(cluster, here.address, gpu_pod()))["patchType"] == "JSONPatch"

        waiting = group.create_task(answer())
        await looked.wait()
        assert not started.is_set()
        async with running(cluster, reviews=False):
            await waiting


class Only:
    """A cluster of which one account sees some Secrets and kinds; whatever else it requests is the failure of a test."""

    def __init__(self, inner, *, secrets, kinds=(), writes=()):
        self._inner, self._secrets, self._kinds, self._writes = inner, secrets, kinds, writes
        self.looked = set()

    def __getattr__(self, verb):
        asked = getattr(self._inner, verb)
        if verb not in {"get", "list", "watch", "create", "patch", "delete"}:
            return asked

        def ask(kind, *args, **named):
            name = args[0] if verb in {"get", "patch"} else ""
            field = (named.get("fields") or "").removeprefix("metadata.name=")
            if kind.kind == "Secret":
                self.looked.add(name or field)
                assert verb == "create" or (name or field) in self._secrets, f"{verb} {name or field}"
            elif self._kinds:
                assert kind.kind in self._kinds, f"{verb} {kind.kind}"
            if verb in {"create", "patch", "delete"}:
                assert kind.kind in self._writes, f"{verb} {kind.kind}"
            return asked(kind, *args, **named)

        return ask


async def test_the_authority_sees_nothing_but_secrets_and_registrations_and_the_controller_no_key_but_the_signing_key(
    cluster,
):
    registrations = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    four = {"drawbridge", "drawbridge-authority", "drawbridge-signature", "drawbridge-quota"}
    keeper = Only(cluster, secrets=four, kinds=registrations, writes=("Secret", *registrations))
    maker = Only(cluster, secrets={"drawbridge-signature"}, writes=("ResourceClaimTemplate", "Lease"))
    reader = Only(cluster, secrets={"drawbridge", "drawbridge-signature"})
    allocators = ("drawbridge-quota.svc",)
    async with running(
        keeper, reviews=False, controllers=False, authority=True, allocator_names=allocators
    ) as authority:
        assert await text(f"http://{authority.metrics}/readyz") == (200, "[+]certificate ok\n")
        _, shown = await text(f"http://{authority.metrics}/metrics")
        assert "drawbridge_certificate_days" in shown
        assert "drawbridge_stock_age_seconds" not in shown, "it would look as if it had not heard the cluster"
    async with (
        running(maker, reviews=False, authority=False) as controller,
        running(reader, controllers=False, authority=False) as webhook,
    ):
        answer = await post(cluster, webhook.address, gpu_pod(), namespace="default")
        stored = apply_json_patch(gpu_pod() | {"metadata": {"name": "p", "namespace": "default"}}, tuple(json.loads(base64.b64decode(answer["patch"]))))  # fmt: skip
        await cluster.create(resources.PODS.raw, stored, "default")

        async def made():
            return (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items

        await until(made)
        assert (await text(f"http://{controller.metrics}/readyz"))[0] == 200
        _, shown = await text(f"http://{controller.metrics}/metrics")
        assert "drawbridge_certificate_days" not in shown, "it has none that could end"
    assert (keeper.looked, maker.looked, reader.looked) == (
        {*four, ""},
        {"drawbridge-signature"},
        {"drawbridge", "drawbridge-signature"},
    )


async def test_a_webhook_with_a_certificate_in_files_reads_the_signing_keys_and_not_the_other(cluster, tmp_path):
    async with running(cluster, reviews=False):
        secret = await cluster.get(resources.SECRETS, "drawbridge", NAMESPACE)
        files = tuple(str(tmp_path / name) for name in ("tls.crt", "tls.key"))
        for file in files:
            with open(file, "wb") as out:  # noqa: ASYNC230, PTH123  two small files
                out.write(base64.b64decode(secret.data[file.rpartition("/")[2]]))
        reader = Only(cluster, secrets={"drawbridge-signature"})
        async with running(reader, controllers=False, authority=False, tls_cert=files[0], tls_key=files[1]) as webhook:
            assert (await post(cluster, webhook.address, gpu_pod()))["patchType"] == "JSONPatch"


async def test_replicas_share_certificate_and_signing_keys(cluster):
    async with running(cluster) as one, running(cluster, identity="b") as two:
        first, second = await post(cluster, one.address, gpu_pod()), await post(cluster, two.address, gpu_pod())
        assert first == second

        async def one_leads():
            return sorted([one.service.election.leading, two.service.election.leading]) == [False, True]

        await until(one_leads)


async def test_a_new_configuration_is_in_force_without_a_restart(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    good = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: {}\n"
    file.write_text(good.format("enforce"))
    async with running(cluster, Source(str(file), every=0.01)) as here:
        assert "patch" in await post(cluster, here.address, gpu_pod())
        file.write_text(good.format("warn"))

        async def warned():
            answer = await post(cluster, here.address, gpu_pod())
            return "patch" not in answer and "warnings" in answer

        await until(warned)


def replace(file, text):
    """At once, as the kubelet does: a file that is being written is read in part, and what is wrong with it is something else."""
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)


async def test_a_bad_rule_file_leaves_the_old_one_in_force_and_is_told(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    table = "dialects: [{name: ours, title: Ours, keys: [{name: our.org/gpu, meaning: GPUs, role: ROLE}]}]\n"
    file.write_text(head)
    async with running(cluster, Source(str(file), every=0.01)) as here:
        ours = gpu_pod(limits={"our.org/gpu": "1"})
        assert "patch" not in await post(cluster, here.address, ours)
        replace(file, head + table.replace("ROLE", "count"))

        async def read():
            return "patch" in await post(cluster, here.address, ours)

        await until(read)
        replace(file, head + table.replace("ROLE", "cuont"))

        async def told():
            _, metrics = await text(f"http://{here.metrics}/metrics")
            return "drawbridge_configuration_good 0.0" in metrics

        await until(told)
        for url in (f"https://{here.address}", f"http://{here.metrics}"):
            status, body = await text(f"{url}/readyz?verbose", await trust(cluster))
            assert status == 200
            assert "[!]webhooks: the API server may not send pods with names of our.org to the webhook" in body
            assert f"[!]configuration: the new content is refused, and the last good one is in force: {file}:3:" in body
            assert "did you mean count?" in body
        assert "patch" in await post(cluster, here.address, ours)


async def test_a_process_without_a_configuration_shows_none(cluster):
    """The authority has none: by the shipped alert it would differ from the others forever."""
    async with running(cluster) as here:
        assert "drawbridge_configuration_info{" not in (await text(f"http://{here.metrics}/metrics"))[1]


async def test_a_replica_shows_which_configuration_it_decides_by_until_it_decides_by_another(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    first = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: warn\n"
    second, bad = first.replace("warn", "observe"), first.replace("warn", "loud")
    file.write_text(first)

    async def shown(here):
        _, metrics = await text(f"http://{here.metrics}/metrics")
        return re.findall(r'^drawbridge_configuration_info\{sha256="([0-9a-f]*)"\} 1\.0$', metrics, re.MULTILINE)

    async with running(cluster, Source(str(file), every=0.01)) as here:
        assert await shown(here) == [digest(first)]
        replace(file, second)

        async def read():
            return await shown(here) == [digest(second)]

        await until(read)
        replace(file, bad)

        async def told():
            return "[!]configuration" in (await text(f"http://{here.metrics}/readyz?verbose"))[1]

        await until(told)
        assert await shown(here) == [digest(second)]


def digest(content):
    return hashlib.sha256(content.encode()).hexdigest()


async def test_certificate_rotation_under_load_refuses_no_review(cluster):
    """Authority and leaf change many times over while reviews go on, each over a new connection that trusts the bundle of its moment."""
    second = dt.timedelta(seconds=1)  # what a certificate can tell apart
    # Early renewals, so that a machine that stalls for seconds does not outlive a certificate.
    policy = Policy(authority_life=36 * second, leaf_life=12 * second, pause=1 * second, renew_at=1 / 12)
    leaves, bundles = set(), set()
    now = asyncio.get_running_loop().time

    async def answer(address):
        """A bundle is good for the pause before the next leaf: a process that stalled for longer reads it again."""
        while True:
            begun = now()
            try:
                return await post(cluster, address, gpu_pod())
            except aiohttp.ClientConnectorCertificateError:
                if now() - begun < policy.pause.total_seconds():
                    raise

    async def follow():
        async with cluster.watch(resources.SECRETS, NAMESPACE, initial=True) as events:
            async for event in events:
                if isinstance(event, Change) and event.object.metadata.name == "drawbridge":
                    bundles.add(event.object.data["ca.crt"])

    async with running(cluster, policy=policy, pace=QUICK) as here:
        following = asyncio.create_task(follow())  # no bundle is missed, however long a review takes
        # Bundles: one authority, both, both the other way round, the new one.
        while len(leaves) < 3 or len(bundles) < 4:
            assert (await answer(here.address))["allowed"]
            leaves.add(here.service.certificate._pair.certificate)
            assert not following.done()
        assert (await answer(here.address))["allowed"], "with the last bundle alone"
        following.cancel()


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(cluster):
    class Away(Embedded):
        tries = 3

        async def server(self):
            if self.tries:
                self.tries -= 1
                raise Unavailable("no server there")
            return await super().server()

    away = Away()
    fill(away)
    async with running(away, pace=QUICK) as here:
        assert (await post(away, here.address, gpu_pod()))["allowed"]


async def test_a_stock_that_is_old_translates_and_never_denies(cluster):
    impossible = gpu_pod(limits={"nvidia.com/gpu": "64"})

    async def verdict(here):
        answer = await post(cluster, here.address, impossible)
        assert answer["allowed"] == ("patch" in answer)
        return answer["allowed"]

    async with running(cluster) as here:
        assert not await verdict(here)
    async with running(cluster, pace=Pace(fresh=-1.0)) as here:
        assert await verdict(here)


@pytest.mark.parametrize("lost", ["drawbridge", "drawbridge-authority", "drawbridge-signature"])
async def test_a_secret_deleted_by_hand_is_made_again_and_told_to_the_webhooks(cluster, lost):
    client = {"service": {"namespace": NAMESPACE, "name": "drawbridge"}}
    hook = {
        "name": "a.drawbridge.dev",
        "clientConfig": client,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "MutatingWebhookConfiguration"
    await cluster.create(
        resources.MUTATING_WEBHOOKS.raw,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "drawbridge"},
            "webhooks": [hook],
        },
    )
    async with running(cluster) as here:
        await cluster.delete(resources.SECRETS, lost, NAMESPACE)

        async def told():
            secrets = {item.metadata.name: item for item in (await cluster.list(resources.SECRETS)).items}
            if not secrets.keys() >= {"drawbridge", "drawbridge-authority", "drawbridge-signature"}:
                return False
            found = await cluster.get(resources.MUTATING_WEBHOOKS, "drawbridge")
            return found.webhooks[0].client_config.ca_bundle == secrets["drawbridge"].data["ca.crt"]

        await until(told)

        async def answered():
            try:
                return (await post(cluster, here.address, gpu_pod()))["allowed"]
            except aiohttp.ClientConnectorError:
                return False  # the new leaf is not loaded yet

        await until(answered)


async def test_a_quota_on_the_key_leaves_the_pod_as_it_is(cluster):
    async with running(cluster) as here:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}  # fmt: skip
        await cluster.create(
            resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        )
        await cluster.create(resources.RESOURCE_QUOTAS, quota, "ns")

        async def left():
            return "patch" not in await post(cluster, here.address, gpu_pod())

        await until(left)
        await cluster.patch(
            resources.RESOURCE_QUOTAS, "q", Merge({"spec": {"hard": {"requests.nvidia.com/gpu": None}}}), "ns"
        )

        async def translated():
            return "patch" in await post(cluster, here.address, gpu_pod())

        await until(translated)


async def test_stopping_ends_every_task(cluster):
    async with running(cluster) as here:
        pass
    assert here.task.done()
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()


def test_addresses_print_as_urls_want_them():
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"
