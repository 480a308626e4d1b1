"""Secrets and certificates of the webhook, the template controller and the certificate authority."""

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
from tests.certs.stores import webhook_configuration
from tests.waiting import until
from tests.webhook.admission.reviews import gpu_pod
from tests.webhook.service.processes import NAMESPACE, QUICK_PACE, get_text, post, running


async def test_a_webhook_without_controllers_awaits_the_secret_and_writes_nothing(cluster):
    secret_requested = asyncio.Event()

    class ReadOnly:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            assert name in ("get", "list", "watch", "server"), f"a webhook must not {name}"
            if name == "get":  # the webhook gets only the Secret, and watches everything else
                secret_requested.set()
            return getattr(self._inner, name)

    async with asyncio.TaskGroup() as group:
        started = asyncio.Event()

        async def post_when_started():
            async with running(ReadOnly(cluster), controllers=False, authority=False) as process:
                started.set()
                assert (await post(cluster, process.address, gpu_pod()))["patchType"] == "JSONPatch"

        waiting = group.create_task(post_when_started())
        await secret_requested.wait()
        assert not started.is_set()
        async with running(cluster, reviews=False):
            await waiting


class RestrictedCluster:
    """A cluster in which one account can read some Secrets and kinds; any other request fails the test."""

    def __init__(self, inner, *, secrets, kinds=(), writes=()):
        self._inner, self._secrets, self._kinds, self._writes = inner, secrets, kinds, writes
        self.requested_secrets = set()

    def __getattr__(self, verb):
        method = getattr(self._inner, verb)
        if verb not in {"get", "list", "watch", "create", "patch", "delete"}:
            return method

        def checked(kind, *args, **kwargs):
            name = args[0] if verb in {"get", "patch"} else ""
            field = (kwargs.get("fields") or "").removeprefix("metadata.name=")
            if kind.kind == "Secret":
                self.requested_secrets.add(name or field)
                assert verb == "create" or (name or field) in self._secrets, f"{verb} {name or field}"
            elif self._kinds:
                assert kind.kind in self._kinds, f"{verb} {kind.kind}"
            if verb in {"create", "patch", "delete"}:
                assert kind.kind in self._writes, f"{verb} {kind.kind}"
            return method(kind, *args, **kwargs)

        return checked


async def test_each_process_reads_only_the_secrets_that_it_needs(cluster):
    """The authority reads only Secrets and webhook configurations. The only keys that the controller reads are the signing keys."""
    registrations = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    secret_names = {"drawbridge", "drawbridge-authority", "drawbridge-signature", "drawbridge-reservations"}
    authority_cluster = RestrictedCluster(
        cluster, secrets=secret_names, kinds=registrations, writes=("Secret", *registrations)
    )
    controller_cluster = RestrictedCluster(
        cluster, secrets={"drawbridge-signature"}, writes=("ResourceClaimTemplate", "Lease")
    )
    webhook_cluster = RestrictedCluster(cluster, secrets={"drawbridge", "drawbridge-signature"})
    allocators = ("drawbridge-reservations.svc",)
    async with running(
        authority_cluster, reviews=False, controllers=False, authority=True, allocator_names=allocators
    ) as authority:
        assert await get_text(f"http://{authority.metrics}/readyz") == (200, "[+]certificate ok\n")
        _, metrics = await get_text(f"http://{authority.metrics}/metrics")
        assert "drawbridge_certificate_days" in metrics
        assert "drawbridge_stock_age_seconds" not in metrics, "the authority reports the age of unread devices"
    async with (
        running(controller_cluster, reviews=False, authority=False) as controller,
        running(webhook_cluster, controllers=False, authority=False) as webhook,
    ):
        answer = await post(cluster, webhook.address, gpu_pod(), namespace="default")
        stored = apply_json_patch(gpu_pod() | {"metadata": {"name": "p", "namespace": "default"}}, tuple(json.loads(base64.b64decode(answer["patch"]))))  # fmt: skip
        await cluster.create(resources.PODS.raw, stored, "default")

        async def has_template():
            return (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items

        await until(has_template)
        assert (await get_text(f"http://{controller.metrics}/readyz"))[0] == 200
        _, metrics = await get_text(f"http://{controller.metrics}/metrics")
        assert "drawbridge_certificate_days" not in metrics, "the controller reports a certificate of another process"
    assert authority_cluster.requested_secrets == {*secret_names, ""}  # a creation names no Secret in its path
    assert controller_cluster.requested_secrets == {"drawbridge-signature"}
    assert webhook_cluster.requested_secrets == {"drawbridge", "drawbridge-signature"}


async def test_a_webhook_with_certificate_files_reads_only_the_signing_secret(cluster, tmp_path):
    async with running(cluster, reviews=False):
        secret = await cluster.get(resources.SECRETS, "drawbridge", NAMESPACE)
        certificate, key = files = tmp_path / "tls.crt", tmp_path / "tls.key"
        for file in files:
            file.write_bytes(base64.b64decode(secret.data[file.name]))
        webhook_cluster = RestrictedCluster(cluster, secrets={"drawbridge-signature"})
        options = {"controllers": False, "authority": False, "tls_cert": str(certificate), "tls_key": str(key)}
        async with running(webhook_cluster, **options) as webhook:
            assert (await post(cluster, webhook.address, gpu_pod()))["patchType"] == "JSONPatch"


async def test_replicas_share_certificate_and_signing_keys(cluster):
    async with running(cluster) as process, running(cluster, identity="b") as second_process:
        first_answer = await post(cluster, process.address, gpu_pod())
        assert first_answer == await post(cluster, second_process.address, gpu_pod())

        async def one_leads():
            return sorted([process.service.election.leading, second_process.service.election.leading]) == [False, True]

        await until(one_leads)


async def test_certificate_rotation_under_load_refuses_no_review(cluster):
    """The authority and the webhook's certificate change many times. Each review opens a connection that trusts the Secret's current bundle."""
    one_second = dt.timedelta(seconds=1)  # the resolution of times in a certificate
    # Certificates are renewed early, so that none of them expires while the machine stalls for seconds.
    policy = Policy(authority_life=36 * one_second, leaf_life=12 * one_second, pause=1 * one_second, renew_at=1 / 12)
    leaves, bundles = set(), set()
    clock = asyncio.get_running_loop().time

    async def answer(address):
        """Post a review. Repeat it after a certificate error if it took longer than the pause, because its bundle may be outdated."""
        while True:
            started = clock()
            try:
                return await post(cluster, address, gpu_pod())
            except aiohttp.ClientConnectorCertificateError:
                if clock() - started < policy.pause.total_seconds():
                    raise

    async def follow():
        async with cluster.watch(resources.SECRETS, NAMESPACE, initial=True) as events:
            async for event in events:
                if isinstance(event, Change) and event.object.metadata.name == "drawbridge":
                    bundles.add(event.object.data["ca.crt"])

    async with running(cluster, policy=policy, pace=QUICK_PACE) as process:
        following = asyncio.create_task(follow())  # records every bundle, even if a review takes long
        # Four bundles: the old authority, both, both in the other order, the new authority.
        while len(leaves) < 3 or len(bundles) < 4:
            assert (await answer(process.address))["allowed"]
            leaves.add(process.service.certificate._pair.certificate)
            assert not following.done()
        assert (await answer(process.address))["allowed"], "a review that trusts the last bundle is not allowed"
        following.cancel()


@pytest.mark.parametrize("deleted", ["drawbridge", "drawbridge-authority", "drawbridge-signature"])
async def test_a_deleted_secret_is_recreated_and_its_bundle_distributed(cluster, deleted):
    cluster.load([webhook_configuration("MutatingWebhookConfiguration")])
    async with running(cluster) as process:
        await cluster.delete(resources.SECRETS, deleted, NAMESPACE)

        async def is_distributed():
            secrets = {item.metadata.name: item for item in (await cluster.list(resources.SECRETS)).items}
            if not secrets.keys() >= {"drawbridge", "drawbridge-authority", "drawbridge-signature"}:
                return False
            configuration = await cluster.get(resources.MUTATING_WEBHOOKS, "drawbridge")
            return configuration.webhooks[0].client_config.ca_bundle == secrets["drawbridge"].data["ca.crt"]

        await until(is_distributed)

        async def answered():
            try:
                return (await post(cluster, process.address, gpu_pod()))["allowed"]
            except aiohttp.ClientConnectorError:
                return False  # the new leaf is not loaded yet

        await until(answered)
