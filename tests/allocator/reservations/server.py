"""A model of the API server, as far as claims go: versions, write-once allocations, and whatever else it refuses."""

from msgspec.structs import asdict, replace

from allocator.reservations import FINALIZER
from allocator.reservations.effects import PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.events import ClaimGone, ClaimPart, Conflicted, Written
from allocator.reservations.ledger import same_devices
from dra.objects import Pod, ResourceClaim
from dra.wire import convert
from tests.dra.samples import DRIVER

WRITES = (PatchFinalizer, PatchAllocation, PatchReservedFor, Unallocate)


def copied(ledger):
    """Make a ledger that says the same and changes by itself."""
    own = {name: dict(value) for name, value in asdict(ledger).items() if isinstance(value, dict)}
    return replace(ledger, **own)


def claim(name, uid=None, **meta):
    """Make a claim without an allocation."""
    body = {"name": name, "namespace": "team", "uid": uid or name, "resourceVersion": "1", **meta}
    return convert({"metadata": body}, ResourceClaim)


def granted(*devices, node="n1", pool="p", share=None, amount=None):
    """Make an allocation of devices of one node."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        | ({"shareID": share} if share else {})
        | ({"consumedCapacity": amount} if amount else {})
        for device in devices
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    return convert({"status": {"allocation": allocation}}, ResourceClaim).status.allocation


def pod(name, *claims, node="", phase="Pending", **meta):
    """Make a pod that names claims."""
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, **meta},
        "spec": {"resourceClaims": entries, "nodeName": node},
        "status": {"phase": phase},
    }
    return convert(body, Pod)


def part(one, allocation=None):
    return ClaimPart(one, allocation)


class Server:
    """Claims by uid. Every change is a new version; a write is conditioned on one."""

    def __init__(self, *claims, version=0):
        self.claims = {claim.metadata.uid: claim for claim in claims}
        self.version = max([version, *(int(claim.metadata.resource_version) for claim in claims)])

    def copy(self):
        """Make a server that goes on by itself from here."""
        return Server(*self.claims.values(), version=self.version)

    def put(self, one):
        """Change a claim, as any client does."""
        uid = one.metadata.uid
        old = self.claims.get(uid)
        if old is not None:
            was, is_ = old.status.allocation, one.status.allocation
            assert was is None or is_ is None or same_devices(was, is_), "an allocation is written once"
            if replace(old, metadata=replace(old.metadata, resource_version="")) == replace(
                one, metadata=replace(one.metadata, resource_version="")
            ):
                return old  # what changes nothing makes no version
        assert one.status.allocation is not None or not one.status.reserved_for, "reserved without an allocation"
        assert len(one.status.reserved_for) <= 256, "reserved for too many"
        self.version += 1
        meta = replace(one.metadata, resource_version=str(self.version))
        self.claims[uid] = replace(one, metadata=meta)
        return self.claims[uid]

    def remove(self, uid):
        """Delete a claim for good."""
        self.claims.pop(uid, None)

    def control(self, consumers):
        """Do what the claim controller does: take out consumers that are gone, and the allocation with the last of them."""
        for claim in list(self.claims.values()):
            left = tuple(each for each in claim.status.reserved_for if each.uid not in consumers)
            if len(left) < len(claim.status.reserved_for):
                kept = claim.status.allocation if left or FINALIZER not in claim.metadata.finalizers else None
                self.put(replace(claim, status=replace(claim.status, allocation=kept, reserved_for=left)))

    def apply(self, write):
        """Do what a write says, and answer with the event that its writer would tell the ledger."""
        name, version = write.claim.metadata.uid, write.claim.metadata.resource_version
        one = self.claims.get(name)
        if one is None:
            return ClaimGone(f"team/{write.claim.metadata.name}", name)
        if one.metadata.resource_version != version:
            return Conflicted(name, version)
        match write:
            case PatchFinalizer(_, finalizers):
                changed = replace(one, metadata=replace(one.metadata, finalizers=finalizers))
            case PatchAllocation(_, allocation, reserved_for):
                changed = replace(one, status=replace(one.status, allocation=allocation, reserved_for=reserved_for))
            case PatchReservedFor(_, reserved_for):
                changed = replace(one, status=replace(one.status, reserved_for=reserved_for))
            case Unallocate(_):
                changed = replace(one, status=replace(one.status, allocation=None, reserved_for=()))
        return Written(version, self.put(changed))
