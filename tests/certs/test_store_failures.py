"""Secrets of certificates after a replica was killed or paused, after a Secret was lost, and with a wrong clock."""

import asyncio
import itertools
import random
from base64 import b64decode

import pytest

from certs import authority
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from tests.certs.stores import (
    CONFIGURATIONS,
    DAY,
    NOW,
    SECRET_ENTRIES,
    Clock,
    Interrupted,
    bundles,
    data_of,
    store,
)
from tests.limits import draws


class TrustChecking(Embedded):
    """A cluster that checks after each patch that every webhook's bundle trusts every certificate that may be served."""

    checks = 0
    is_checking = False

    async def patch(self, *args, **kwargs):
        result = await super().patch(*args, **kwargs)
        if self.is_checking:
            await self._check_trust()
        return result

    async def _check_trust(self):
        authority_data = decoded_entries(await data_of(self, "drawbridge-authority"))
        trusted = [authority_data[name] for name in ("authority.crt", "previous.crt") if name in authority_data]
        all_bundles = await bundles(self)
        for name in ("drawbridge", "drawbridge-reservations"):
            serving = decoded_entries(await data_of(self, name))
            [signer] = [
                part for part in certificates_of(serving["ca.crt"]) if authority.signed_by(serving["tls.crt"], part)
            ]
            assert signer.strip() in [certificate.strip() for certificate in trusted], (
                f"the leaf in {name} is signed by a retired authority"
            )
            assert all(signer in certificates_of(bundle) for bundle in all_bundles), (
                f"the bundle of a webhook does not trust the leaf in {name}"
            )
        self.checks += 1


def decoded_entries(data):
    return {name: b64decode(value) for name, value in data.items()}


def certificates_of(bundle):
    end_line = b"-----END CERTIFICATE-----\n"
    return [part + end_line for part in bundle.split(end_line)[:-1]]


# The day on which a new authority is introduced, used or the last one; the call before which the replica pauses; the number of syncs of the
# other replica meanwhile. Syncs after the last step of a rotation find nothing to do.
PAUSES = list(itertools.product((201, 202, 203), range(1, 16), (1, 2, 3)))


@pytest.mark.parametrize(("day", "call_number", "rounds"), random.Random(0).sample(PAUSES, draws(len(PAUSES))))
async def test_a_replica_paused_between_any_two_calls_writes_nothing_outdated(day, call_number, rounds):
    """While one replica is paused, another one syncs up to three times, a day apart, which is longer than the policy requires."""
    cluster, clock = TrustChecking(), Clock()
    cluster.load(CONFIGURATIONS)
    number = iter(range(100))
    options = {"new_signing_key": lambda: b"%032d" % next(number)}
    replica = store(cluster, clock, **options)
    await replica.sync()
    cluster.is_checking = True
    for passed in range(201, day):
        clock.now = NOW + passed * DAY
        await replica.sync()
    clock.now = NOW + day * DAY

    async def meanwhile():
        for _ in range(rounds):
            await replica.sync()
            clock.now += DAY

    await store(Interrupted(cluster, call_number, meanwhile), clock, **options).sync()
    pki = await replica.sync()
    assert await bundles(cluster) == [pki.bundle] * 4
    assert cluster.checks


class Killed(Embedded):
    """A cluster whose nth write ends the replica, either before or after the write is carried out."""

    writes_left, is_written_before_kill = 10**9, False

    async def _write(self, write, *args, **kwargs):
        self.writes_left -= 1
        if self.writes_left == 0 and not self.is_written_before_kill:
            raise Unavailable("killed before the write")
        result = await write(*args, **kwargs)
        if self.writes_left == 0:
            raise Unavailable("killed after the write")
        return result

    async def create(self, *args, **kwargs):
        return await self._write(super().create, *args, **kwargs)

    async def patch(self, *args, **kwargs):
        return await self._write(super().patch, *args, **kwargs)


@pytest.mark.parametrize("is_written_before_kill", [False, True])
@pytest.mark.parametrize("write_number", range(1, 6))
@pytest.mark.parametrize("day", [0, 61, 201, 202])
async def test_the_next_start_repairs_a_kill_at_any_write(write_number, is_written_before_kill, day):
    cluster, clock = Killed(), Clock()
    cluster.load(CONFIGURATIONS)
    for passed in (0, 201) if day == 202 else (0,) if day else ():
        clock.now = NOW + passed * DAY
        await store(cluster, clock).sync()
    clock.now = NOW + day * DAY
    cluster.writes_left, cluster.is_written_before_kill = write_number, is_written_before_kill
    try:
        await store(cluster, clock).sync()
    except Unavailable:
        pass
    cluster.writes_left = 10**9
    pki = await store(cluster, clock).sync()
    assert await bundles(cluster) == [pki.bundle] * 4
    assert pki.signing_keys.current
    assert authority.signed_by(pki.leaf.certificate, pki.authority.certificate)


@pytest.mark.parametrize("lost_secret", list(SECRET_ENTRIES))
async def test_a_deleted_secret_returns_and_signatures_stay_valid(cluster, lost_secret):
    before = await store(cluster, Clock()).sync()
    await cluster.delete(resources.SECRETS, lost_secret, "default")
    after = await store(cluster, Clock(), new_signing_key=lambda: pytest.fail("a signing key was lost")).sync()
    assert after.signing_keys == before.signing_keys
    assert await bundles(cluster) == [after.bundle] * 4
    if lost_secret == "drawbridge":
        assert after.authority == before.authority, "webhooks would not trust a leaf of a new authority yet"


@pytest.mark.parametrize("days", [-29, -1, 1, 29, 59])
async def test_a_clock_that_jumps_and_comes_back_costs_no_trust(cluster, days):
    """Each bundle contains the authorities of the syncs before and after. Only a leaf signed over 30 days ahead may be invalid now."""
    clock = Clock()
    replica = store(cluster, clock)
    history = [await replica.sync()]
    clock.now += days * DAY
    history.append(await replica.sync())
    clock.now = NOW
    history.append(await replica.sync())
    for pki in history:
        assert authority.span(pki.leaf.certificate).valid(NOW) or days > 30
        assert authority.span(pki.authority.certificate).valid(NOW)
    for before, after in itertools.pairwise(history):
        assert before.authority.certificate.strip() in after.bundle
        assert after.authority.certificate.strip() in before.bundle
    assert authority.span(history[-1].leaf.certificate).valid(NOW)


@pytest.mark.parametrize("age", [0, 45, 190, 201])
async def test_two_replicas_with_small_clock_skew_converge(cluster, age):
    early_clock, late_clock = Clock(), Clock()
    first, second = store(cluster, early_clock), store(cluster, late_clock)
    await first.sync()
    early_clock.now += age * DAY
    late_clock.now += (age + 29) * DAY
    for _ in range(5):
        await asyncio.gather(first.sync(), second.sync())
    pki = await first.sync()
    assert await second.sync() == pki
    assert await bundles(cluster) == [pki.bundle] * 4
