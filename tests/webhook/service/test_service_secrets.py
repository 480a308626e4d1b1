"""Secrets and certificates of the webhook, the controller and the authority."""

import asyncio
import base64
import datetime as dt
import json

import aiohttp
import pytest

from certs.rotation import Policy
from cluster import resources
from cluster.patch import apply_json_patch
from cluster.protocol import Change
from tests.waiting import until
from tests.webhook.admission.reviews import gpu_pod
from tests.webhook.service.processes import NAMESPACE, QUICK, post, running, text


async def test_a_webhook_without_controllers_awaits_the_secret_and_writes_nothing(cluster):
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
    """A cluster in which one account can read some Secrets and kinds; any other request fails the test."""

    def __init__(self, inner, *, secrets, kinds=(), writes=()):
        self._inner, self._secrets, self._kinds, self._writes = inner, secrets, kinds, writes
        self.looked = set()

    def __getattr__(self, verb):
        method = getattr(self._inner, verb)
        if verb not in {"get", "list", "watch", "create", "patch", "delete"}:
            return method

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
            return method(kind, *args, **named)

        return ask


async def test_each_process_reads_only_the_secrets_that_it_needs(
    cluster,
):
    """The authority reads Secrets and webhook configurations only. The controller reads no key but the signing keys."""
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


async def test_a_webhook_with_certificate_files_reads_only_the_signing_secret(cluster, tmp_path):
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
    async with running(cluster) as here, running(cluster, identity="b") as there:
        first, second = await post(cluster, here.address, gpu_pod()), await post(cluster, there.address, gpu_pod())
        assert first == second

        async def one_leads():
            return sorted([here.service.election.leading, there.service.election.leading]) == [False, True]

        await until(one_leads)


async def test_certificate_rotation_under_load_refuses_no_review(cluster):
    """Authority and leaf change many times. Each review opens a connection that trusts the bundle in the Secret at that moment."""
    second = dt.timedelta(seconds=1)  # the resolution of times in a certificate
    # Early renewals, so that a machine that stalls for seconds does not outlive a certificate.
    policy = Policy(authority_life=36 * second, leaf_life=12 * second, pause=1 * second, renew_at=1 / 12)
    leaves, bundles = set(), set()
    now = asyncio.get_running_loop().time

    async def answer(address):
        """Post a review. Repeat it after a certificate error if it took longer than the pause, because its bundle may be outdated."""
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
        following = asyncio.create_task(follow())  # sees every bundle, even if a review takes long
        # Bundles: one authority, both, both the other way round, the new one.
        while len(leaves) < 3 or len(bundles) < 4:
            assert (await answer(here.address))["allowed"]
            leaves.add(here.service.certificate._pair.certificate)
            assert not following.done()
        assert (await answer(here.address))["allowed"], "with the last bundle alone"
        following.cancel()


@pytest.mark.parametrize("lost", ["drawbridge", "drawbridge-authority", "drawbridge-signature"])
async def test_a_deleted_secret_is_recreated_and_its_bundle_distributed(cluster, lost):
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

        async def is_distributed():
            secrets = {item.metadata.name: item for item in (await cluster.list(resources.SECRETS)).items}
            if not secrets.keys() >= {"drawbridge", "drawbridge-authority", "drawbridge-signature"}:
                return False
            configuration = await cluster.get(resources.MUTATING_WEBHOOKS, "drawbridge")
            return configuration.webhooks[0].client_config.ca_bundle == secrets["drawbridge"].data["ca.crt"]

        await until(is_distributed)

        async def answered():
            try:
                return (await post(cluster, here.address, gpu_pod()))["allowed"]
            except aiohttp.ClientConnectorError:
                return False  # the new leaf is not loaded yet

        await until(answered)
