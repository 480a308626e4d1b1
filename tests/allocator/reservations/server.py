"""A model of the API server for claims: versions, allocations that cannot be changed, and conflicts."""

from msgspec.structs import asdict, replace

from allocator.reservations import FINALIZER
from allocator.reservations.effects import PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.events import ClaimGone, ClaimPart, Conflicted, Written
from allocator.reservations.ledger import same_devices
from dra.objects import Pod, ResourceClaim
from dra.wire import convert
from tests.dra.samples import DRIVER

WRITES = (PatchFinalizer, PatchAllocation, PatchReservedFor, Unallocate)


def copy_ledger(ledger):
    """Return an independent copy of a ledger."""
    copies = {name: dict(value) for name, value in asdict(ledger).items() if isinstance(value, dict)}
    return replace(ledger, **copies)


def claim(name, uid=None, **meta):
    """Return a claim without an allocation."""
    body = {"name": name, "namespace": "team", "uid": uid or name, "resourceVersion": "1", **meta}
    return convert({"metadata": body}, ResourceClaim)


def allocation_of(*devices, node="n1", pool="p", share=None, amount=None):
    """Return an allocation of devices of one node."""
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
    """Return a pod with claims."""
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, **meta},
        "spec": {"resourceClaims": entries, "nodeName": node},
        "status": {"phase": phase},
    }
    return convert(body, Pod)


def claim_part(claim, allocation=None):
    """Return the part of a decision about one claim; without an allocation, the claim is allocated already."""
    return ClaimPart(claim, allocation)


class Server:
    """Claims by uid. Every change makes a new version; a write names the version that it changes."""

    def __init__(self, *claims, version=0):
        self.claims = {claim.metadata.uid: claim for claim in claims}
        self.version = max([version, *(int(claim.metadata.resource_version) for claim in claims)])

    def copy(self):
        """Return an independent copy of the server."""
        return Server(*self.claims.values(), version=self.version)

    def put(self, claim):
        """Store a claim, as any client may; return the claim as it is stored."""
        uid = claim.metadata.uid
        stored = self.claims.get(uid)
        if stored is not None:
            before, after = stored.status.allocation, claim.status.allocation
            assert before is None or after is None or same_devices(before, after), (
                "the allocation of a claim was changed"
            )
            if replace(stored, metadata=replace(stored.metadata, resource_version="")) == replace(
                claim, metadata=replace(claim.metadata, resource_version="")
            ):
                return stored  # an equal object gets no new version
        assert claim.status.allocation is not None or not claim.status.reserved_for, (
            "a claim without an allocation is reserved"
        )
        assert len(claim.status.reserved_for) <= 256, "a claim is reserved for more than 256 pods"
        self.version += 1
        meta = replace(claim.metadata, resource_version=str(self.version))
        self.claims[uid] = replace(claim, metadata=meta)
        return self.claims[uid]

    def remove(self, uid):
        """Delete a claim."""
        self.claims.pop(uid, None)

    def run_claim_controller(self, deleted_pods):
        """Act as the claim controller: remove consumers that are gone, and with the last consumer the allocation, if the claim has our finalizer."""
        for claim in list(self.claims.values()):
            remaining = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid not in deleted_pods)
            if len(remaining) < len(claim.status.reserved_for):
                allocation = (
                    claim.status.allocation if remaining or FINALIZER not in claim.metadata.finalizers else None
                )
                self.put(replace(claim, status=replace(claim.status, allocation=allocation, reserved_for=remaining)))

    def apply(self, write):
        """Apply a write, and return the event that its writer reports to the ledger."""
        uid, version = write.claim.metadata.uid, write.claim.metadata.resource_version
        stored = self.claims.get(uid)
        if stored is None:
            return ClaimGone(f"team/{write.claim.metadata.name}", uid)
        if stored.metadata.resource_version != version:
            return Conflicted(uid, version)
        match write:
            case PatchFinalizer(_, finalizers):
                changed = replace(stored, metadata=replace(stored.metadata, finalizers=finalizers))
            case PatchAllocation(_, allocation, reserved_for):
                changed = replace(
                    stored, status=replace(stored.status, allocation=allocation, reserved_for=reserved_for)
                )
            case PatchReservedFor(_, reserved_for):
                changed = replace(stored, status=replace(stored.status, reserved_for=reserved_for))
            case Unallocate(_):
                changed = replace(stored, status=replace(stored.status, allocation=None, reserved_for=()))
        return Written(version, self.put(changed))
