"""The rail webhook of openshift-psap (llm-d): one key for pairs of a GPU and a network device.

The numbers of the pod's containers are summed up, and each of these containers gets all pairs. The devices of a pair are under one PCIe root.
All pairs are on one NUMA node, unless the pod allows several NUMA nodes or requests as many pairs as a node has. That webhook also chooses a
rail for each pair and pins the pod to a node; with claims, the scheduler chooses rail and node. Keys and limits follow
openshift-psap/dra-rail-admission-webhook: internal/webhook/constants.go, validator.go, claim_builder.go, mutator.go; the targets are those of
its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, row, untranslated
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT
from webhook.dialects.vocabulary import (
    POD_LIMIT,
    AnyDemand,
    Demand,
    DialectAnswer,
    DialectOptions,
    KeyedDemand,
    Note,
    Pairs,
    TiedDemands,
    Vocabulary,
    count_of,
    leave,
    mistake,
    refuse,
)
from webhook.names import CONFIGURATION_PAGE
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding
    from dra.reason import Reason
    from webhook.dialects.vocabulary import DialectRequest

_RAILS = "network devices that can do RDMA, on any rail"
_Pairs = Annotated[int, Meta(ge=1, le=POD_LIMIT // 2)]

DIALECT = Dialect(
    name="llmd",
    title="Rail webhook of openshift-psap (llm-d)",
    scope=Scope.POD,
    keys=(
        row(
            "dra.llm-d.io/gpu-nic-pair",
            "pairs of a GPU and a network device under one PCIe root",
            Role.COUNT,
            outcome=Outcome.APPROXIMATED,
            because=f"on one NUMA node unless the pod allows several; {_RAILS}, with the `parameters` of target nic",
        ),
        row(
            "dra.llm-d.io/allow-cross-numa",
            "whether pairs may be on several NUMA nodes",
            Role.NUMA_BIND,
            Position.ANNOTATION,
            unit=Unit.BOOL,
            when="true",
        ),
        untranslated(
            "dra.llm-d.io/mutated",
            "an output",
            "that webhook has made the pod's claims, or leaves the pod alone",
            Position.ANNOTATION,
            role=Role.PLACED,
            unit=Unit.BOOL,
            when="true",
        ),
    ),
)


class LlmdOptions(DialectOptions, frozen=True, kw_only=True):
    """The limits in that webhook's ConfigMap."""

    pairs_per_numa_node: _Pairs = 4  # The webhook's `maxPairsPerNUMA`.
    # The webhook's `maxPairsPerNode`: the maximum for a pod whose pairs may be on several NUMA nodes.
    pairs_per_node: _Pairs = 8

    def mistakes(self) -> Iterable[Finding]:
        if self.pairs_per_numa_node > self.pairs_per_node:
            reason = f"{self.pairs_per_numa_node} pairs are out of range"
            yield mistake("/pairsPerNumaNode", reason, "write 1 to pairsPerNode")


def read(request: DialectRequest[LlmdOptions]) -> DialectAnswer | Reason:
    """Return the pairs that the pod's containers request together, if that webhook would accept the pod."""
    key, count = "", 0
    for container in request.containers:
        for amount in container.amounts:
            key = amount.key
            if container.init and amount.value:
                return leave(key, "requested in an init container, which that webhook does not read")
            count += amount.value
    options = request.options
    max_pairs, max_on_numa_node = options.pairs_per_node, options.pairs_per_numa_node
    if count > max_pairs:
        remedy = f"ask for {max_pairs} at most; an administrator can declare `llmd: {{pairsPerNode: {count}}}` ({CONFIGURATION_PAGE})"
        return refuse(key, f"{count} pairs in one pod, {max_pairs} is the maximum", remedy, Code.RANGE)
    cross_numa_hint = request.hints.get(Role.NUMA_BIND)
    if max_on_numa_node < count < max_pairs and not cross_numa_hint:
        reason = f"{count} pairs are requested, and a NUMA node has {max_on_numa_node}"
        name = next(row.name for row in request.table.keys if row.role is Role.NUMA_BIND)
        remedy = f"ask for {max_on_numa_node} or {max_pairs}, or allow several NUMA nodes by annotation {name}: 'true'"
        return refuse(key, reason, remedy)
    gpus, networks = Demand(target="gpu", count=count), Demand(target="nic", count=1, rdma=True)
    pairs = Pairs(primary=gpus, secondary=networks, attribute=PCIE_ROOT)
    demand: AnyDemand = pairs
    placement = ""
    if 1 < count < max_pairs and not cross_numa_hint:
        demand, placement = TiedDemands(members=(pairs,), attribute=NUMA_NODE), ", all on one NUMA node"
    text = f"{count_of(count, 'pair')} of a GPU and a network device, each under one PCIe root{placement}; {_RAILS}"
    notes = [Note(key, Outcome.APPROXIMATED, text)]
    if cross_numa_hint:
        notes.append(Note(cross_numa_hint.key, Outcome.TRANSLATED, "nothing ties the pairs to one NUMA node"))
    return DialectAnswer(demands=(KeyedDemand(key, demand, (key,)),), notes=tuple(notes))


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=LlmdOptions)
