"""The types of what commands print with `-o json`.

A test compares the output of each command with these types, so that neither changes alone.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import inspect

from allocator import Granted, Rejection, SearchVerdict
from allocator.reasons import NearestFit
from allocator.simulation import PodOutcome, Simulation
from analysis.capacity import NodeDevices, Total
from analysis.configuration import ConfigurationSource
from analysis.explain import OfClaim, OfDevice, OfPod, OfWorkload
from analysis.loading import Unread
from analysis.matrix import PoolMatrix
from analysis.migration import MigrationPlan, accept, status
from analysis.quota_use import QuotaReport
from analysis.rules import NotChecked
from analysis.survey import Overview
from cli.cases import CaseResult
from cli.pull_request import PullRequest
from dra.finding import Finding, Severity
from webhook.dialects import Dialect, Outcome
from webhook.translate import Decision


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be read or done. A wrong option has only a message and a remedy."""

    message: str
    remedy: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    # A JSON pointer into the object.
    pointer: str = ""


class OfQuotas(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answers of DeviceQuotas about equal pods, or about a claim; `path` is the path of the pod or claim in the object."""

    object: str
    path: str
    replicas: int
    # How many of the equal pods pass.
    replicas_left: int
    # The fields of a refusal: line, requested, hard, used, remaining, pending, replicas, replicasLeft; and exceeded.
    lines: list[dict[str, str | bool]]


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge translate -o json`."""

    configuration: ConfigurationSource
    # Every object in order; new templates precede the objects that need them.
    items: list[dict[str, Any]]
    decisions: list[Decision]  # of each key
    warnings: list[str]
    refusals: list[str]
    quotas: list[OfQuotas]  # the answers of DeviceQuotas


class SkippedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was not judged: not a manifest, a template, part of a kustomization, or what a test expects.

    `key` is the first key in it that requests devices, if any, and `line` is its line. `makes` is the kind of Flux or Argo CD that a template
    makes, if it installs something.
    """

    file: str
    line: int
    reason: Literal["other", "template", "patch", "assertion"]
    key: str
    makes: str


class Surveyed(Overview, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge survey -o json`."""

    configuration: ConfigurationSource
    # The number of workloads by outcome.
    outcomes: dict[Outcome, int]  # type: ignore[assignment]
    # Files that were left out, with the reason, and the first key of each that requests devices.
    skipped_documents: list[SkippedDocument]


class Checked(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge check -o json`."""

    configuration: ConfigurationSource
    findings: list[Finding]
    # Files that were left out, with the reason, and the first key of each that requests devices.
    skipped_documents: list[SkippedDocument]


class CodeMeaning(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The meaning of a code."""

    code: str
    title: str
    severity: Severity
    remedy: str
    # What happens without drawbridge.
    without_drawbridge: str


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge explain CODE -o json`."""

    codes: list[CodeMeaning]


class ClaimsOnNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices that claims get on a node, or why not."""

    verdict: SearchVerdict
    feasible: bool
    allocations: list[Granted]
    # Why the claims get no devices.
    reasons: list[Rejection]
    # Changes with which the claims would fit; only for the first of equivalent nodes, and only if no node fits.
    nearest_fits: list[NearestFit]
    error: str | None
    steps: int
    # The node's score by the strategy: the higher, the better.
    score: float


class SimulatedClaims(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge simulate --claims -o json`."""

    configuration: ConfigurationSource
    strategy: str
    nodes: dict[str, ClaimsOnNode]  # by name
    unread: list[Unread]


class Simulated(Simulation, frozen=True, kw_only=True):
    """`drawbridge simulate -o json`: the pods."""

    configuration: ConfigurationSource
    strategy: str
    unread: list[Unread]


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge quota -o json`."""

    quotas: list[QuotaReport]
    # Kinds that could not be read, so the answer leaves them out.
    unread: list[Unread]


class OfResize(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge resize -o json`."""

    configuration: ConfigurationSource
    # Whether every new pod fits once the old ones have ended, and no quota refuses one.
    fits: bool
    pods: list[PodOutcome]
    # One more pod of a Deployment, while the old pods still hold their devices.
    surge_pod: PodOutcome | None
    # Each line of a quota that counts the new pods, without the old ones.
    quotas: list[dict[str, str]]
    # The objects to apply: the workload, and the templates that it names.
    objects: list[dict[str, Any]]
    # Kinds that could not be read, so the answer leaves them out.
    unread: list[Unread]


class Diagnosed(Finding, frozen=True, kw_only=True):
    """A finding about a cluster, and the result of its repair."""

    # What `--repair` would do, if anything.
    repair: str
    repaired: bool
    # Why it was not repaired.
    problem: str


class Examined(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge doctor -o json`."""

    configuration: ConfigurationSource
    findings: list[Diagnosed]
    not_checked: list[NotChecked]
    # Kinds that could not be read, so the answer leaves them out.
    unread: list[Unread]


class Uninstalled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge uninstall -o json`."""

    # The objects that were or would be removed, in this order.
    removed_objects: list[str]
    # The objects that stay, and why.
    remaining_objects: list[str]
    # Whether anything was changed.
    changed: bool


class HeldOfPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that a container has from a device plugin, and the same device under the names that drivers publish."""

    resource: str
    id: str
    # NAMESPACE/NAME
    pod: str
    devices: list[str]
    # The published devices that are tainted, so that claims do not get them.
    tainted_devices: list[str]


class NotRead(msgspec.Struct, frozen=True, kw_only=True):
    """A source on a node that could not be read, and why."""

    source: str
    reason: str


class NodeAudit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge node-agent --once -o json`."""

    node: str
    findings: list[Finding]
    # The devices that containers have from device plugins.
    plugin_devices: list[HeldOfPlugin]
    unread: list[NotRead]


class Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge snapshot -o json`."""

    configuration: ConfigurationSource
    file: str
    # The version of the server.
    server: str
    objects: int
    bytes: int
    # The number of values that were left out.
    redacted_values: int
    unread: list[Unread]


class Vocabularies(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge dialects -o json`."""

    dialects: list[Dialect]  # tables, in the format of a configuration


class OfCases(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge test -o json`."""

    cases: list[CaseResult]


class Held(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge free -o json`."""

    nodes: list[NodeDevices]
    totals: list[Total]
    # Nodes with usable devices of which none is in use.
    idle_nodes: tuple[str, ...]
    # Which devices of each pool can be in use together; only with `--together`.
    together: list[PoolMatrix]
    unread: list[Unread]


class OfVersion(msgspec.Struct, frozen=True, kw_only=True):
    """`drawbridge version -o json`."""

    version: str
    # The minor versions that drawbridge supports.
    kubernetes: list[str]
    python: str


# The documents that each command prints.
ANSWERS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "check": (Checked,),
    "dialects": (Vocabularies,),
    "doctor": (Examined,),
    "explain": (Explained, OfPod, OfWorkload, OfClaim, OfDevice),
    "free": (Held,),
    "migrate": (MigrationPlan, PullRequest, accept.Acceptance, status.MigrationStatus),
    "node-agent": (NodeAudit,),
    "quota": (Limited,),
    "resize": (OfResize,),
    "simulate": (Simulated, SimulatedClaims),
    "snapshot": (Saved,),
    "survey": (Surveyed,),
    "test": (OfCases,),
    "translate": (Translated,),
    "uninstall": (Uninstalled,),
    "version": (OfVersion,),
}


def empty_answer(command: str) -> dict[str, Any]:
    """Return the answer of a command to input that is not valid: every value is empty."""
    answer: dict[str, Any] = _empty(inspect.type_info(ANSWERS[command][0])) if command in ANSWERS else {}
    return answer


def _empty(type_: inspect.Type) -> Any:
    match type_:
        case inspect.StructType():
            return {field.encode_name: _empty(field.type) for field in type_.fields}
        case inspect.StrType():
            return ""
        case inspect.DictType():
            return {}
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.LiteralType():
            return type_.values[0]
        case inspect.UnionType():  # with null
            return None
    return []
