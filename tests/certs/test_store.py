"""Secrets of certificates and signing keys: replicas create, share and renew them."""

import asyncio
import random
from base64 import b64encode

import pytest

from certs import authority
from certs.material import Names
from certs.rotation import RotationPhase
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Invalid
from cluster.patch import Merge
from tests.certs.stores import DAY, NAMES, SECRET_ENTRIES, Clock, Interrupted, bundles, data_of, store


async def test_a_first_start_makes_everything_and_updates_every_webhook(cluster):
    pki = await store(cluster, Clock()).sync()
    assert authority.names(pki.leaf.certificate) == set(NAMES.webhook)
    assert pki.signing_keys.keys == (b"k" * 32,)
    assert await bundles(cluster) == [pki.bundle] * 4


async def test_a_second_start_reuses_the_existing_secrets(cluster):
    first = await store(cluster, Clock()).sync()
    second_start = store(cluster, Clock(), new_signing_key=lambda: pytest.fail("a second signing key was made"))
    assert await second_start.sync() == first


class Interleaved:
    """A cluster for concurrent replicas: each call first yields to the event loop up to seven times, a random number."""

    def __init__(self, cluster, rng):
        self._cluster, self._rng = cluster, rng

    def __getattr__(self, name):
        call = getattr(self._cluster, name)

        async def called(*arguments):
            for _ in range(self._rng.randrange(8)):
                await asyncio.sleep(0)
            return await call(*arguments)

        return called


@pytest.mark.parametrize("seed", range(10))
async def test_replicas_that_start_together_use_equal_secrets(cluster, seed):
    number = iter(range(100))
    interleaved_cluster = Interleaved(cluster, random.Random(seed))
    replicas = [store(interleaved_cluster, Clock(), new_signing_key=lambda: b"%032d" % next(number)) for _ in range(8)]
    answers = await asyncio.gather(*(replica.sync() for replica in replicas))
    assert answers == [answers[0]] * 8
    assert await store(cluster, Clock()).sync() == answers[0]


async def test_names_shared_by_both_leaves_do_not_cause_endless_signing(cluster):
    names = Names((*NAMES.webhook, *NAMES.allocator), NAMES.allocator)
    pki = await store(cluster, Clock(), names=names).sync()
    assert await store(cluster, Clock(), names=names).sync() == pki


@pytest.mark.parametrize("lost_secret", ["drawbridge", "drawbridge-reservations"])
async def test_a_lost_leaf_is_signed_anew_and_the_other_stays(cluster, lost_secret):
    replica = store(cluster, Clock())
    before = await replica.sync()
    await cluster.delete(resources.SECRETS, lost_secret, "default")
    after = await replica.sync()
    lost, kept = ("leaf", "allocator") if lost_secret == "drawbridge" else ("allocator", "leaf")
    assert getattr(after, lost) != getattr(before, lost)
    assert getattr(after, kept) == getattr(before, kept)


@pytest.mark.parametrize("call_number", range(1, 8))
@pytest.mark.parametrize(
    "lost_secret", ["drawbridge", "drawbridge-reservations", "drawbridge-signature", "drawbridge-authority"]
)
async def test_a_sync_returns_what_another_replica_repaired(cluster, lost_secret, call_number):
    number = iter(range(100))
    replica = store(cluster, Clock(), new_signing_key=lambda: b"%032d" % next(number))
    await replica.sync()
    await cluster.delete(resources.SECRETS, lost_secret, "default")
    paused_replica = store(
        Interrupted(cluster, call_number, replica.sync), Clock(), new_signing_key=lambda: b"%032d" % next(number)
    )
    assert await paused_replica.sync() == await replica.sync()


async def test_old_leaves_are_trusted_by_new_bundles_throughout(cluster):
    clock = Clock()
    replica = store(cluster, clock)
    before = await replica.sync()
    phases = set()
    for _ in range(400):
        clock.now += DAY
        after = await replica.sync()
        assert await bundles(cluster) == [after.bundle] * 4
        assert before.authority.certificate.strip() in after.bundle
        phases.add(after.phase)
        before = after
    assert phases == {RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED}


async def test_another_writers_entry_in_the_secret_survives_renewal(cluster):
    replica = store(cluster, Clock())
    await replica.sync()
    note = {"data": {"note": b64encode(b"hello").decode()}}
    await cluster.patch(resources.SECRETS, "drawbridge", Merge(note), "default")
    clock = Clock()
    clock.now += 61 * DAY
    await store(cluster, clock).sync()
    secret = await cluster.get(resources.SECRETS, "drawbridge", "default")
    assert secret.data["note"] == note["data"]["note"]


@pytest.mark.parametrize(
    "name", ["drawbridge", "drawbridge-authority", "drawbridge-signature", "drawbridge-reservations"]
)
async def test_a_secret_of_another_type_is_neither_read_nor_written(cluster, name):
    """Kubernetes writes a token of the annotated service account into a Secret of this type, whoever created the Secret."""
    await store(cluster, Clock()).sync()
    await cluster.delete(resources.SECRETS, name, "default")
    foreign_secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "drawbridge-controller"}},
        "data": {"signature.key": b64encode(b"f" * 32).decode()},
    }
    created = await cluster.create(resources.SECRETS, foreign_secret, "default")
    replica = store(cluster, Clock())
    reads = [replica.sync]
    reads += [replica.read] if name in ("drawbridge", "drawbridge-signature") else []
    reads += [replica.signing_keys] if name == "drawbridge-signature" else []
    for read in reads:
        with pytest.raises(Invalid, match=f"default/{name} has type 'kubernetes.io/service-account-token'"):
            await read()
    assert await cluster.get(resources.SECRETS, name, "default") == created


async def test_without_webhook_configurations_a_leaf_is_still_issued():
    pki = await store(Embedded(), Clock()).sync()
    assert pki.leaf


async def entries_by_secret(cluster):
    return {name: set(await data_of(cluster, name)) for name in SECRET_ENTRIES}


async def test_authority_server_and_signature_keys_have_separate_secrets(cluster):
    await store(cluster, Clock()).sync()
    entries = await entries_by_secret(cluster)
    entries["drawbridge-authority"].discard("previous.crt")
    assert entries == SECRET_ENTRIES


async def test_a_verifier_reads_the_signing_secret_and_no_other_secret(cluster):
    pki = await store(cluster, Clock()).sync()
    for name in ("drawbridge", "drawbridge-authority"):
        await cluster.delete(resources.SECRETS, name, "default")
    assert await store(cluster, Clock()).signing_keys() == pki.signing_keys


async def test_a_read_only_replica_does_not_know_the_authority(cluster):
    pki = await store(cluster, Clock()).sync()
    read_only_pki = await store(cluster, Clock()).read()
    assert (read_only_pki.leaf, read_only_pki.signing_keys) == (pki.leaf, pki.signing_keys)
    assert read_only_pki.authority is None
