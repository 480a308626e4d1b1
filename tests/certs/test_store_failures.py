"""Secrets of certificates after a kill, a pause, a lost Secret or a wrong clock."""

import asyncio
import itertools
from base64 import b64decode

import pytest

from certs import authority
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from cluster.patch import Merge
from tests.certs.stores import DAY, NAMED, NOW, Clock, Interrupted, bundles, data_of, store, webhooks


class Watched(Embedded):
    """A cluster that checks after each patch that every webhook's bundle trusts every certificate that may be served."""

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
            assert signer.strip() in [certificate.strip() for certificate in trusted], (
                f"{name} is signed by an authority of the past"
            )
            assert all(signer in parts(bundle) for bundle in everywhere), f"{name} is trusted by no webhook"
        self.looks += 1


def decoded(data):
    return {name: b64decode(value) for name, value in data.items()}


def parts(bundle):
    end = b"-----END CERTIFICATE-----\n"
    return [part + end for part in bundle.split(end)[:-1]]


# `rounds` counts syncs of the other replica. Those after the last step find nothing to do.
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("at", range(1, 16))
@pytest.mark.parametrize("day", [201, 202, 203], ids=["introduce", "switch", "retire"])
async def test_a_replica_paused_between_any_two_calls_writes_nothing_outdated(day, at, rounds):
    """While one replica is paused, another one syncs up to three times, a day apart, which is longer than the policy requires."""
    cluster, clock = Watched(), Clock()
    cluster.load([webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration")])
    number = iter(range(100))
    options = {"new_signing_key": lambda: b"%032d" % next(number)}
    replica = store(cluster, clock, **options)
    await replica.sync()
    cluster.begun = True
    for passed in range(201, day):
        clock.now = NOW + passed * DAY
        await replica.sync()
    clock.now = NOW + day * DAY

    async def meanwhile():
        for _ in range(rounds):
            await replica.sync()
            clock.now += DAY

    await store(Interrupted(cluster, at, meanwhile), clock, **options).sync()
    held = await replica.sync()
    assert await bundles(cluster) == [held.bundle] * 4
    assert cluster.looks


async def test_a_secret_that_was_emptied_is_filled_again(cluster):
    await store(cluster, Clock()).sync()
    secret = await cluster.get(resources.SECRETS, "drawbridge", "default")
    empty = {"data": dict.fromkeys(secret.data)}
    await cluster.patch(resources.SECRETS, "drawbridge", Merge(empty), "default")
    held = await store(cluster, Clock()).sync()
    assert await bundles(cluster) == [held.bundle] * 4


class Dying(Embedded):
    """A cluster that fails before or after its nth write."""

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


@pytest.mark.parametrize("lost", list(NAMED))
async def test_a_deleted_secret_returns_and_signatures_stay_valid(cluster, lost):
    before = await store(cluster, Clock()).sync()
    await cluster.delete(resources.SECRETS, lost, "default")
    after = await store(cluster, Clock(), new_signing_key=lambda: pytest.fail("a signing key was lost")).sync()
    assert after.signing_keys == before.signing_keys
    assert await bundles(cluster) == [after.bundle] * 4
    if lost == "drawbridge":
        assert after.authority == before.authority, "so no call fails: the new leaf is believed already"


@pytest.mark.parametrize("days", [-29, -1, 1, 29, 59])
async def test_a_clock_that_jumps_and_comes_back_costs_no_trust(cluster, days):
    """Each bundle has the authorities before and after it. Only a leaf signed in a jump of over 30 days may be invalid at the true time."""
    clock = Clock()
    replica = store(cluster, clock)
    history = [await replica.sync()]
    clock.now += days * DAY
    history.append(await replica.sync())
    clock.now = NOW
    history.append(await replica.sync())
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
    first, second = store(cluster, early), store(cluster, late)
    await first.sync()
    early.now += age * DAY
    late.now += (age + 29) * DAY
    for _ in range(5):
        await asyncio.gather(first.sync(), second.sync())
    held = await first.sync()
    assert await second.sync() == held
    assert await bundles(cluster) == [held.bundle] * 4
