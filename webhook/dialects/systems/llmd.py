"""The rail webhook of openshift-psap (llm-d): pairs of a GPU and a network device by one number.

The sum over the pod's containers is meant, and every container that asks sees all of it. A pair is under one PCIe root; pairs are on one
NUMA node, unless the pod allows several or asks for as many as a node has. That webhook also chooses a rail for each pair and pins the
pod to a node; here the scheduler does that, by what drivers publish. Keys and limits follow openshift-psap/dra-rail-admission-webhook:
internal/webhook/constants.go, validator.go, claim_builder.go, mutator.go; the targets are those of its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, left, row
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT
from webhook.dialects.vocabulary import (
    POD_LIMIT,
    Asked,
    Demand,
    DialectAnswer,
    KeyedDemand,
    Note,
    Options,
    Pairs,
    Refusal,
    Stop,
    Together,
    Untranslated,
    Vocabulary,
    mistake,
    several,
)
from webhook.names import TABLES
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding
    from webhook.dialects.vocabulary import DialectRequest

_RAILS = "network devices that can do RDMA, on any rail"
_MOST = POD_LIMIT // 2

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
            because=f"on one NUMA node unless allowed otherwise; {_RAILS}, told the `parameters` of target nic",
        ),
        row(
            "dra.llm-d.io/allow-cross-numa",
            "whether pairs may lie on several NUMA nodes",
            Role.NUMA_BIND,
            Position.ANNOTATION,
            unit=Unit.BOOL,
            when="true",
        ),
        left(
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


class LlmdOptions(Options, frozen=True, kw_only=True):
    """How many pairs that webhook takes, as its ConfigMap says."""

    pairs_per_numa_node: int = 4  # Its `maxPairsPerNUMA`.
    pairs_per_node: int = 8  # Its `maxPairsPerNode`: so many, or what the pod allows, may lie on several NUMA nodes.

    def mistakes(self) -> Iterable[Finding]:
        if not 1 <= self.pairs_per_node <= _MOST:
            yield mistake("/pairsPerNode", f"{self.pairs_per_node} pairs are out of range", f"write 1 to {_MOST}")
        elif not 1 <= self.pairs_per_numa_node <= self.pairs_per_node:
            reason = f"{self.pairs_per_numa_node} pairs are out of range"
            yield mistake("/pairsPerNumaNode", reason, "write 1 to pairsPerNode")


def read(request: DialectRequest[LlmdOptions]) -> DialectAnswer | Stop:
    """Read a pod: the sum of what its containers ask for, if that webhook would take it."""
    key, count = "", 0
    for container in request.containers:
        for amount in container.amounts:
            key = amount.key
            if container.init and amount.value:
                return Untranslated(key, "requested in an init container, which that webhook does not read")
            count += amount.value
    options = request.options
    most, together = options.pairs_per_node, options.pairs_per_numa_node
    if count > most:
        remedy = f"ask for {most} at most; an administrator can declare `llmd: {{pairsPerNode: {count}}}` ({TABLES})"
        return Refusal(key, f"{count} pairs in one pod, {most} is the most", remedy, Code.RANGE)
    allowed = request.hints.get(Role.NUMA_BIND)
    if together < count < most and not allowed:
        reason = f"{count} pairs are more than a NUMA node has, which is {together}"
        name = next(row.name for row in request.table.keys if row.role is Role.NUMA_BIND)
        remedy = f"ask for {together} or {most}, or allow several NUMA nodes by annotation {name}: 'true'"
        return Refusal(key, reason, remedy)
    gpus, networks = Demand(target="gpu", count=count), Demand(target="nic", count=1, rdma=True)
    pairs = Pairs(primary=gpus, secondary=networks, attribute=PCIE_ROOT)
    demand: Asked = pairs
    where = ""
    if 1 < count < most and not allowed:
        demand, where = Together(members=(pairs,), attribute=NUMA_NODE), ", all on one NUMA node"
    text = f"{several(count, 'pair')} of a GPU and a network device, each under one PCIe root{where}; {_RAILS}"
    notes = [Note(key, Outcome.APPROXIMATED, text)]
    if allowed:
        notes.append(Note(allowed.key, Outcome.TRANSLATED, "nothing ties the pairs to one NUMA node"))
    return DialectAnswer(demands=(KeyedDemand(key, demand, (key,)),), notes=tuple(notes))


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=LlmdOptions)
