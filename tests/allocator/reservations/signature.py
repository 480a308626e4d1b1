"""Signatures of model worlds: worlds with equal signatures are explored once."""

from allocator.reservations import FINALIZER
from allocator.reservations.ledger import pools_of
from tests.allocator.reservations.scenes import devices_of_claim


def sign(world):
    """Return a value that is equal for worlds with the same possible futures."""
    ranks = {uid: _ranks(world, uid) for uid in world.scene.claims}
    return (
        world.holder,
        world.faults,
        world.lease_moves,
        world.deaths,
        tuple(world.is_alive.items()),
        tuple(world.is_placed.items()),
        tuple(_sign_claim(claim, ranks) for claim in world.server.claims.values()),
        tuple(_sign_ledger(ledger, ranks) for ledger in world.ledgers),
        tuple(sorted((key, _sign_decision(world, key[0], decision)) for key, decision in world.decisions.items())),
        tuple(sorted(_sign_write(replica, write, ranks) for replica, write in world.in_flight)),
        tuple(sorted(_sign_write(replica, write, ranks) for replica, write in world.late_writes)),
        tuple(tuple(sorted(uids)) for uids in world.claims_to_read),
        tuple(tuple(sorted(pods)) for pods in world.pods_to_read),
        tuple(sorted(world.ready)),
        tuple(sorted(world.binding)),
    )


def _ranks(world, uid):
    """Return the rank of each version of a claim that occurs in the world.

    Signatures contain ranks, because versions count all writes: two worlds may differ in their versions and in nothing else.
    """
    versions = {0}
    if uid in world.server.claims:
        versions.add(int(world.server.claims[uid].metadata.resource_version))
    for ledger in world.ledgers:
        hold = ledger.holds.get(uid)
        if hold is not None:
            hold_versions = (hold.claim.metadata.resource_version, hold.informer_version, hold.version)
            versions.update(int(version) for version in hold_versions if version)
    unanswered_writes = (
        write for _, write in (*world.in_flight, *world.late_writes) if write.claim.metadata.uid == uid
    )
    versions.update(int(write.claim.metadata.resource_version) for write in unanswered_writes)
    return {str(version): rank for rank, version in enumerate(sorted(versions))} | {"": -1}


def _sign_ledger(ledger, ranks):
    holds = tuple(
        (
            uid,
            _sign_claim(hold.claim, ranks),
            ranks[uid][hold.informer_version],
            hold.intent is not None,
            devices_of_allocation(hold.intent),
            tuple(sorted(hold.users)),
            hold.busy,
            ranks[uid][hold.version] if hold.busy else 0,
            hold.lost,
            hold.is_ours,
            # Further rejected writes only make pauses longer, and `World.wait` outlasts every pause.
            min(hold.refusals, 2),  # the number of writes that the API server rejected in succession
            bool(hold.refusal),  # whether the claim must wait before the next write
        )
        for uid, hold in sorted(ledger.holds.items(), key=lambda entry: entry[0])
    )
    reservations = tuple(
        (
            reservation.pod,
            reservation.token,
            reservation.claims,
            reservation.state,
            reservation.awaited,
            reservation.started,
            reservation.planned_end,
        )
        for reservation in (ledger.reservations[name] for name in sorted(ledger.reservations))
    )
    pods = tuple((uid, fact.node, fact.done) for uid, fact in sorted(ledger.pods.items(), key=lambda entry: entry[0]))
    return ledger.leading, holds, reservations, pods, tuple(sorted(ledger.deleted))


def _sign_decision(world, replica, decision):
    parts, generation, _ = decision
    changed = world.ledgers[replica].changed  # by pool or namespace: the generation of its last change
    pools = {"/".join(pool) for part in parts for pool in pools_of(part.allocation)}
    namespace = "team"  # of all claims and pods; a change of its usage makes decisions about quotas outdated
    devices = tuple(devices_of_allocation(part.allocation) for part in parts)
    return devices, tuple(sorted(name for name in pools | {namespace} if changed.get(name, 0) > generation))


def devices_of_allocation(allocation):
    if allocation is None:
        return ()
    return tuple((result.pool, result.device) for result in allocation.devices.results)


def _sign_claim(claim, ranks):
    meta = claim.metadata
    consumers = tuple(consumer.uid for consumer in claim.status.reserved_for)
    return ranks[meta.uid][meta.resource_version], FINALIZER in meta.finalizers, devices_of_claim(claim), consumers


def _sign_write(replica, write, ranks):
    consumers = tuple(consumer.uid for consumer in getattr(write, "reserved_for", ()))
    finalizers = getattr(write, "finalizers", ())
    meta = write.claim.metadata
    devices = devices_of_allocation(getattr(write, "allocation", None))
    return (
        replica,
        type(write).__name__,
        meta.uid,
        ranks[meta.uid][meta.resource_version],
        consumers,
        finalizers,
        devices,
    )
