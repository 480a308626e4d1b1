import asyncio
import datetime as dt
import itertools
import random
from base64 import b64decode, b64encode

import pytest

from certs import authority
from certs.material import Names
from certs.rotation import Policy, RotationPhase
from certs.store import SecretStore
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Invalid, Unavailable
from cluster.patch import Merge

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
POLICY = Policy(300 * DAY, 90 * DAY, dt.timedelta(minutes=10))
NAMES = Names(("drawbridge.default.svc",), ("drawbridge-quota.default.svc",))


def webhooks(kind, *, bundle=None):
    client = {"service": {"namespace": "default", "name": "drawbridge", "path": "/mutate"}}
    if bundle:
        client["caBundle"] = bundle
    webhook = {
        "name": "a.drawbridge.dev",
        "clientConfig": client,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "drawbridge"},
        "webhooks": [webhook, webhook | {"name": "b.drawbridge.dev"}],
    }


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def store(cluster, clock, **kwargs):
    kwargs.setdefault("new_signing_key", lambda: b"k" * 32)
    kwargs.setdefault("names", NAMES)
    return SecretStore(cluster, namespace="default", name="drawbridge", webhooks=["drawbridge"], policy=POLICY, now=clock, **kwargs)  # fmt: skip


async def bundles(cluster):
    found = []
    for kind in (resources.MUTATING_WEBHOOKS, resources.VALIDATING_WEBHOOKS):
        configuration = await cluster.get(kind, "drawbridge")
        found += [b64decode(webhook.client_config.ca_bundle) for webhook in configuration.webhooks]
    return found


@pytest.fixture
def cluster():
    return Embedded.holding(
        [webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration", bundle="b2xk")]
    )


async def test_a_first_start_makes_everything_and_tells_every_webhook(cluster):
    held = await store(cluster, Clock()).sync()
    assert authority.names(held.leaf.certificate) == set(NAMES.webhook)
    assert held.signing_keys.keys == (b"k" * 32,)
    assert await bundles(cluster) == [held.bundle] * 4


async def test_a_second_start_finds_what_the_first_one_made(cluster):
    first = await store(cluster, Clock()).sync()
    other = store(cluster, Clock(), new_signing_key=lambda: pytest.fail("made twice"))
    assert await other.sync() == first


class Crowded:
    """A cluster as several replicas see it that ask at once: each call waits for its turn, and the seed says whose turn it is."""

    def __init__(self, cluster, chance):
        self._cluster, self._chance = cluster, chance

    def __getattr__(self, name):
        call = getattr(self._cluster, name)

        async def called(*what):
            for _ in range(self._chance.randrange(8)):
                await asyncio.sleep(0)
            return await call(*what)

        return called


@pytest.mark.parametrize("seed", range(10))
async def test_replicas_that_start_together_agree(cluster, seed):
    number = iter(range(100))
    crowded = Crowded(cluster, random.Random(seed))
    several = [store(crowded, Clock(), new_signing_key=lambda: b"%032d" % next(number)) for _ in range(8)]
    answers = await asyncio.gather(*(one.sync() for one in several))
    assert answers == [answers[0]] * 8
    assert await store(cluster, Clock()).sync() == answers[0]


async def test_names_shared_by_both_leaves_do_not_cause_endless_signing(cluster):
    names = Names((*NAMES.webhook, *NAMES.allocator), NAMES.allocator)
    held = await store(cluster, Clock(), names=names).sync()
    assert await store(cluster, Clock(), names=names).sync() == held


@pytest.mark.parametrize("lost", ["drawbridge", "drawbridge-quota"])
async def test_a_lost_leaf_is_signed_anew_and_the_other_stays(cluster, lost):
    one = store(cluster, Clock())
    before = await one.sync()
    await cluster.delete(resources.SECRETS, lost, "default")
    after = await one.sync()
    assert (after.leaf == before.leaf, after.allocator == before.allocator) == (
        lost != "drawbridge",
        lost == "drawbridge",
    )


class Interrupted:
    """A cluster as a process sees it that is interrupted before its call of that number."""

    def __init__(self, cluster, at, meanwhile):
        self._cluster, self._at, self._meanwhile = cluster, at, meanwhile
        self._calls = itertools.count(1)

    def __getattr__(self, name):
        call = getattr(self._cluster, name)

        async def called(*what):
            if next(self._calls) == self._at:
                await self._meanwhile()
            return await call(*what)

        return called


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("gone", ["drawbridge", "drawbridge-quota", "drawbridge-signature", "drawbridge-authority"])
async def test_a_sync_returns_what_another_replica_repaired(cluster, gone, at):
    number = iter(range(100))
    one = store(cluster, Clock(), new_signing_key=lambda: b"%032d" % next(number))
    await one.sync()
    await cluster.delete(resources.SECRETS, gone, "default")
    other = store(Interrupted(cluster, at, one.sync), Clock(), new_signing_key=lambda: b"%032d" % next(number))
    assert await other.sync() == await one.sync()


async def test_old_leaves_are_trusted_by_new_bundles_throughout(cluster):
    clock = Clock()
    one = store(cluster, clock)
    before = await one.sync()
    phases = set()
    for _ in range(400):
        clock.now += DAY
        after = await one.sync()
        assert await bundles(cluster) == [after.bundle] * 4
        assert before.authority.certificate.strip() in after.bundle
        phases.add(after.phase)
        before = after
    assert phases == {RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED}


class Watched(Embedded):
    """A cluster that looks, after each write, whether every leaf that may be served is one that every webhook's bundle trusts."""

    looks = 0
    begun = False

    async def patch(self, *args, **kwargs):
        result = await super().patch(*args, **kwargs)
        if self.begun:
            await self._look()
        return result

    async def _look(self):
        authority_data = decoded(await data_of(self, "drawbridge-authority"))
        trusted = [authority_data[name] for name in ("authority.crt", "previous.crt") if name in authority_data]
        everywhere = await bundles(self)
        for name in ("drawbridge", "drawbridge-quota"):
            serving = decoded(await data_of(self, name))
            [signer] = [part for part in parts(serving["ca.crt"]) if authority.signed_by(serving["tls.crt"], part)]
            assert signer.strip() in [one.strip() for one in trusted], f"{name} is signed by an authority of the past"
            assert all(signer in parts(bundle) for bundle in everywhere), f"{name} is trusted by no webhook"
        self.looks += 1


def decoded(data):
    return {name: b64decode(value) for name, value in data.items()}


def parts(bundle):
    end = b"-----END CERTIFICATE-----\n"
    return [one + end for one in bundle.split(end)[:-1]]


@pytest.mark.parametrize("rounds", [1, 2, 3])  # the steps of a change; those after it find nothing to do
@pytest.mark.parametrize("at", range(1, 16))
@pytest.mark.parametrize("day", [201, 202, 203], ids=["introduce", "switch", "retire"])
async def test_a_replica_paused_between_any_two_calls_writes_nothing_outdated(day, at, rounds):
    """While one replica sleeps, another takes as many steps as it likes, each as far from the one before as a pause demands."""
    cluster, clock = Watched(), Clock()
    cluster.load([webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration")])
    number = iter(range(100))
    options = {"new_signing_key": lambda: b"%032d" % next(number)}
    one = store(cluster, clock, **options)
    await one.sync()
    cluster.begun = True
    for passed in range(201, day):
        clock.now = NOW + passed * DAY
        await one.sync()
    clock.now = NOW + day * DAY

    async def meanwhile():
        for _ in range(rounds):
            await one.sync()
            clock.now += DAY

    await store(Interrupted(cluster, at, meanwhile), clock, **options).sync()
    held = await one.sync()
    assert await bundles(cluster) == [held.bundle] * 4
    assert cluster.looks


async def test_another_writers_entry_in_the_secret_survives_renewal(cluster):
    one = store(cluster, Clock())
    await one.sync()
    note = {"data": {"note": b64encode(b"hello").decode()}}
    await cluster.patch(resources.SECRETS, "drawbridge", Merge(note), "default")
    clock = Clock()
    clock.now += 61 * DAY
    await store(cluster, clock).sync()
    secret = await cluster.get(resources.SECRETS, "drawbridge", "default")
    assert secret.data["note"] == note["data"]["note"]


async def test_a_secret_that_was_emptied_is_filled_again(cluster):
    await store(cluster, Clock()).sync()
    secret = await cluster.get(resources.SECRETS, "drawbridge", "default")
    empty = {"data": dict.fromkeys(secret.data)}
    await cluster.patch(resources.SECRETS, "drawbridge", Merge(empty), "default")
    held = await store(cluster, Clock()).sync()
    assert await bundles(cluster) == [held.bundle] * 4


@pytest.mark.parametrize("name", ["drawbridge", "drawbridge-authority", "drawbridge-signature", "drawbridge-quota"])
async def test_a_secret_of_another_type_is_neither_read_nor_written(cluster, name):
    """Kubernetes fills a token's Secret in for whichever account its annotation names."""
    await store(cluster, Clock()).sync()
    await cluster.delete(resources.SECRETS, name, "default")
    theirs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "drawbridge-controller"}},
        "data": {"signature.key": b64encode(b"f" * 32).decode()},
    }
    made = await cluster.create(resources.SECRETS, theirs, "default")
    one = store(cluster, Clock())
    reading = [one.sync]
    reading += [one.read] if name in ("drawbridge", "drawbridge-signature") else []
    reading += [one.signing_keys] if name == "drawbridge-signature" else []
    for read in reading:
        with pytest.raises(Invalid, match=f"default/{name} has type 'kubernetes.io/service-account-token'"):
            await read()
    assert await cluster.get(resources.SECRETS, name, "default") == made


async def test_without_webhook_configurations_a_leaf_is_still_issued():
    held = await store(Embedded(), Clock()).sync()
    assert held.leaf


class Dying(Embedded):
    """A cluster that goes away before or after its nth write."""

    left, after = 10**9, False

    async def _write(self, write, *args, **kwargs):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Unavailable("killed before the write")
        result = await write(*args, **kwargs)
        if self.left == 0:
            raise Unavailable("killed after the write")
        return result

    async def create(self, *args, **kwargs):
        return await self._write(super().create, *args, **kwargs)

    async def patch(self, *args, **kwargs):
        return await self._write(super().patch, *args, **kwargs)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("day", [0, 61, 201, 202])
async def test_the_next_start_repairs_a_kill_at_any_write(write, after, day):
    cluster, clock = Dying(), Clock()
    cluster.load([webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration")])
    for passed in (0, 201) if day == 202 else (0,) if day else ():
        clock.now = NOW + passed * DAY
        await store(cluster, clock).sync()
    clock.now = NOW + day * DAY
    cluster.left, cluster.after = write, after
    try:
        await store(cluster, clock).sync()
    except Unavailable:
        pass
    cluster.left = 10**9
    held = await store(cluster, clock).sync()
    assert await bundles(cluster) == [held.bundle] * 4
    assert held.signing_keys.current
    assert authority.signed_by(held.leaf.certificate, held.authority.certificate)


def secret(name, data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def data_of(cluster, name):
    return (await cluster.get(resources.SECRETS, name, "default")).data


NAMED = {
    "drawbridge": {"tls.crt", "tls.key", "ca.crt"},
    "drawbridge-authority": {"authority.crt", "authority.key", "since", "signature.key"},
    "drawbridge-signature": {"signature.key"},
    "drawbridge-quota": {"tls.crt", "tls.key", "ca.crt"},
}


async def entries(cluster):
    return {name: set(await data_of(cluster, name)) for name in NAMED}


async def test_authority_server_and_signature_keys_have_separate_secrets(cluster):
    await store(cluster, Clock()).sync()
    found = await entries(cluster)
    found["drawbridge-authority"].discard("previous.crt")
    assert found == NAMED


@pytest.mark.parametrize("count", [1, 2])
async def test_upgrading_old_secrets_renews_only_the_leaves(cluster, count):
    expected = Embedded.holding([])
    await store(expected, Clock()).sync()
    names = Names((*NAMES.webhook, *NAMES.allocator))  # one leaf was for both
    before = await store(cluster, Clock(), names=names).sync()
    serving, authority_data, signing = [await data_of(cluster, name) for name in list(NAMED)[:3]]
    older = [secret("drawbridge", serving | signing | authority_data)]
    if count == 2:
        older = [secret("drawbridge", serving | signing), secret("drawbridge-authority", authority_data)]
    other = Embedded.holding(
        [*older, webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration")]
    )
    after = await store(other, Clock()).sync()
    assert after._replace(leaf=before.leaf, allocator=before.allocator) == before
    assert after.leaf != before.leaf, "a client with the webhook's certificate at the quota port had its key"
    assert await entries(other) == await entries(expected)


async def test_a_verifier_reads_the_signing_secret_and_no_other_secret(cluster):
    held = await store(cluster, Clock()).sync()
    for name in ("drawbridge", "drawbridge-authority"):
        await cluster.delete(resources.SECRETS, name, "default")
    assert await store(cluster, Clock()).signing_keys() == held.signing_keys


@pytest.mark.parametrize("lost", list(NAMED))
async def test_a_deleted_secret_returns_and_signatures_stay_valid(cluster, lost):
    before = await store(cluster, Clock()).sync()
    await cluster.delete(resources.SECRETS, lost, "default")
    after = await store(cluster, Clock(), new_signing_key=lambda: pytest.fail("a signing key was lost")).sync()
    assert after.signing_keys == before.signing_keys
    assert await bundles(cluster) == [after.bundle] * 4
    if lost == "drawbridge":
        assert after.authority == before.authority, "so no call fails: the new leaf is believed already"


async def test_a_read_only_replica_does_not_know_the_authority(cluster):
    held = await store(cluster, Clock()).sync()
    seen = await store(cluster, Clock()).read()
    assert (seen.leaf, seen.signing_keys, seen.authority) == (held.leaf, held.signing_keys, None)


@pytest.mark.parametrize("days", [-29, -1, 1, 29, 59])
async def test_a_clock_that_jumps_and_comes_back_costs_no_trust(cluster, days):
    """The leaf of before, during and after is valid at the true time, and believed by the bundle of its moment and of the next."""
    clock = Clock()
    one = store(cluster, clock)
    history = [await one.sync()]
    clock.now += days * DAY
    history.append(await one.sync())
    clock.now = NOW
    history.append(await one.sync())
    for held in history:
        assert authority.span(held.leaf.certificate).valid(NOW) or days > 30
        assert authority.span(held.authority.certificate).valid(NOW)
    for before, after in itertools.pairwise(history):
        assert before.authority.certificate.strip() in after.bundle
        assert after.authority.certificate.strip() in before.bundle
    assert authority.span(history[-1].leaf.certificate).valid(NOW)


@pytest.mark.parametrize("age", [0, 45, 190, 201])
async def test_two_replicas_with_small_clock_skew_converge(cluster, age):
    early, late = Clock(), Clock()
    one, two = store(cluster, early), store(cluster, late)
    await one.sync()
    early.now += age * DAY
    late.now += (age + 29) * DAY
    for _ in range(5):
        await asyncio.gather(one.sync(), two.sync())
    held = await one.sync()
    assert await two.sync() == held
    assert await bundles(cluster) == [held.bundle] * 4
