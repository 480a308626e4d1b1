"""How a tree's pods share a plugin's devices now, and how they can share the driver's devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.migration.charts import DRIVERS
from analysis.migration.plan import DeviceSharing, SharingDecision
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from analysis.gitops import Release
    from analysis.migration.platform import Platform, SnapshotNodes
    from analysis.migration.plugins import InstalledPlugin
    from analysis.migration.requests import Request
    from cluster.manifests import Document
    from webhook.state import State

_NAMED: Final = 4
_CHOICES: Final = {
    "named claim": "one ResourceClaim that all pods of one namespace name: they share its device, and run on one node",
    "admin access": (
        "claims with adminAccess and allocationMode All: each pod sees all devices of its node, no claim counts them, and the namespace "
        "needs the label resource.kubernetes.io/admin-access=true"
    ),
}
# With this policy, Intel's plugin allocates the device with the fewest pods.
_BALANCED: Final = "balanced"


class ReadTree(NamedTuple):
    """The contents of a tree's builds."""

    documents: Sequence[Document]
    requests: Sequence[Request]
    releases: Sequence[Release]
    plugins: Sequence[InstalledPlugin]
    platform: Platform
    fleet: SnapshotNodes
    state: State
    named_classes: Collection[str] = ()  # the keys that DeviceClasses of the builds serve by name


def sharing_of(driver: str, keys: Collection[str], read: ReadTree) -> DeviceSharing | None:
    """Return how pods share the devices of a driver, with a proposal; None if each pod gets devices of its own."""
    usually = read.state.fleet.installed.usually
    shared = {key: of_key for key in sorted(keys) if (of_key := usually(key)) is not None}
    # NVIDIA's plugin offers replicas under a key with this suffix. The tree does not state the number of replicas.
    uncounted = [key for key in sorted(keys) if key.endswith(".shared") and key not in shared]
    requests = [
        request
        for request in read.requests
        if driver in request.consumer.drivers and request.consumer.verdict != "cannot" and not request.is_parked
    ]
    # An object may have several places without a request.
    without = list({request.consumer.object: request for request in requests if not request.classes}.values())
    users = [request for request in requests if request in without or request.consumer.key in (*shared, *uncounted)]
    now = [*map(str, shared.values()), *[f"{key} counts replicas of devices" for key in uncounted]]
    if without:
        now.append(f"{count_of(len(without), 'workload')} without a request can use every device of their nodes")
    if not now:
        return None
    names = list_first([request.consumer.object for request in users], _NAMED)
    present = read.fleet.devices_of(driver)
    of_nodes = f"the nodes have {count_of(present, 'device')}"
    own = f"each pod gets a device of its own: {count_of(len(users), 'device')} for {names}"
    choices = {"exclusive": own + (f"; {of_nodes}" if present else ""), **_CHOICES}
    values = {}
    if driver in DRIVERS and (shares := DRIVERS[driver].shares) is not None:
        # A workload without a request took no replica.
        replicas = [] if without else [of_key.sharing.replicas for of_key in shared.values()]
        several = f"up to {max(replicas)} claims share" if replicas else "any number of claims share"
        values = {**shares.values, shares.number: max(replicas, default="unlimited")}
        choices["shares"] = f"{several} a device, also of several namespaces: {shares.needs}"
    enough = f"{of_nodes} for {count_of(len(users), 'workload')}" if present >= len(users) else ""
    decision, because = _proposal(users, enough, "" if present else _why_not_one_node(driver, read), choices)
    return DeviceSharing(
        now="; ".join(now),
        devices=len(users),
        decision=decision,
        because=because,
        choices=choices,
        values_for_shares=values,
    )


def _proposal(
    users: Sequence[Request], enough: str, not_one_node: str, choices: Mapping[str, str]
) -> tuple[SharingDecision, str]:
    """Return the proposed decision and its reason. `enough` and `not_one_node` are possible reasons, or ""."""
    namespaces = sorted({request.namespace for request in users})
    of_names = {request.consumer.object.rpartition("/")[2]: request.apart_from for request in users}
    pairs = [{name, other} for name, others in of_names.items() for other in others & of_names.keys() - {name}]
    apart = set[str]().union(*pairs)
    why = f"workloads in {' and '.join(namespaces)} share devices, and a claim belongs to one namespace"
    if apart:
        why = f"a podAntiAffinity keeps {' and '.join(sorted(apart))} on different nodes, and all pods of a named claim run on one"
    may_share_a_claim = len(namespaces) == 1 and not apart
    proposals: tuple[tuple[object, SharingDecision, str], ...] = (
        (len(users) <= 1, "exclusive", "at most one workload of the tree shares devices"),
        (any(request.is_of_ray for request in users), "exclusive", "Ray counts a device for each of its pods"),
        (enough, "exclusive", enough),
        (apart == of_names.keys(), "exclusive", why),
        (may_share_a_claim and not_one_node, "undecided", not_one_node),
        (may_share_a_claim, "named claim", f"all workloads are in namespace {', '.join(namespaces)}"),
        ("shares" in choices, "shares", why),
        (True, "exclusive", f"{why}, and the driver has no shares"),
    )
    return next((decision, because) for applies, decision, because in proposals if applies)


def _why_not_one_node(driver: str, read: ReadTree) -> str:
    """Return why it may be wrong to run all pods on one node; "" if the files contain no reason."""
    nodes, where = read.platform.nodes
    settings = [plugin.settings for plugin in read.plugins if plugin.runner.driver == driver]
    if any(_BALANCED in (entry.get("allocationPolicy"), entry.get("preferredAllocationPolicy")) for entry in settings):
        return f"the plugin prefers the device with the fewest pods (policy `{_BALANCED}`), and a named claim has one device"
    return (
        f"all pods of a named claim run on one node, and no file shows how many devices the {nodes} nodes ({where}) have"
        if nodes > 1
        else ""
    )
