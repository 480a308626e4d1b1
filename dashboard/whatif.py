"""Simulates where pasted and existing pods would be placed, on the fleet as it is or with fewer or more nodes.

The webhook's code translates or refuses the pasted pods; then the simulation places pods on the fleet as it was read. Nothing is created.
The question is packed into the address of the page, so that a viewer can send the address to other people.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from allocator.pods import pending
from allocator.simulation import PodOutcome, Snapshot
from analysis.arrivals import arrivals, brings_pods
from analysis.errors import Broken
from analysis.loading import TypedObjects
from analysis.outlook import beside, place
from analysis.quota_use import foretell_in
from analysis.simulated import change_nodes
from cluster import manifests
from cluster.manifests import ManifestError
from dashboard.tenants import OTHERS
from dashboard.waiting import waits_for_node
from dra.objects import ResourceClaim, ResourceClaimTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analysis.loading import Reading
    from cluster.manifests import Document
    from dra.reason import Reason
    from webhook.state import State

LONGEST = 32 << 10  # bytes of a question
MAX_PODS = 200
MAX_NAMES = 100  # of nodes
TOO_LONG: Final = f"a question has at most {LONGEST >> 10} KiB: leave other objects out, or use `drawbridge simulate`"
EXAMPLE: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: example}
spec:
  containers:
  - name: main
    image: example
    resources: {limits: {nvidia.com/gpu: 1}}
"""
_NOT_WHOLE: Final = "the address is cut off: copy all of it, or paste the manifest"


class Unanswerable(Exception):  # noqa: N818  it is shown as an answer, not as an error
    """The question cannot be answered; the message says why, and what to do."""


class WhatIfQuestion(NamedTuple):
    """Manifests, nodes to remove, and nodes to add as NODE=N."""

    text: str = ""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> WhatIfQuestion:
        """Read a form, or the query of a link. Raise Unanswerable."""
        packed = query.get("q", "")
        text = unpack(packed) if packed else query.get("manifest", "")
        return cls(text, _names(query.get("remove", "")), _names(query.get("add", "")))

    def as_query(self) -> dict[str, str]:
        """Return the query of a link to the page with this question."""
        query = {
            "q": pack(self.text) if self.text.strip() else "",
            "remove": " ".join(self.removed),
            "add": " ".join(self.added),
        }
        return {name: value for name, value in query.items() if value}

    @property
    def is_empty(self) -> bool:
        return not (self.text.strip() or self.removed or self.added)


class QuotaEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of the question's pods on a line of a quota."""

    line: str
    exceeded: bool


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome for each pod in the question, each pod on a removed node, and, if nodes are added, each waiting pod."""

    pods: tuple[PodOutcome, ...]
    placed: int
    # The lines of quotas that count the question's pods.
    quotas: tuple[QuotaEffect, ...] = ()
    # The number of waiting pods that were left out, because the number of pods in a question is limited.
    left: int = 0


def _names(text: str) -> tuple[str, ...]:
    names = text.replace(",", " ").split()
    if len(names) > MAX_NAMES:
        raise Unanswerable(f"{len(names)} nodes are more than {MAX_NAMES}: name fewer, or use `drawbridge simulate`")
    return tuple(names)


def pack(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(packed: str) -> str:
    """Return the text in an address. Raise Unanswerable if `pack` did not write it, or the text is too long."""
    try:
        data = base64.urlsafe_b64decode(packed.encode() + b"=" * (-len(packed) % 4))
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, LONGEST + 1)
        unpacked = text.decode(errors="replace")
    except (binascii.Error, zlib.error, ValueError):
        raise Unanswerable(_NOT_WHOLE) from None
    if len(text) > LONGEST:
        raise Unanswerable(TOO_LONG)
    if not unpacking.eof or unpacking.unused_data:
        raise Unanswerable(_NOT_WHOLE)
    return unpacked


def what_if(reading: Reading, question: WhatIfQuestion, is_late: Callable[[], bool]) -> WhatIf:
    """Answer a question. Raise Unanswerable."""
    if len(question.text.encode()) > LONGEST:
        raise Unanswerable(TOO_LONG)
    try:
        documents = manifests.parse(question.text, "manifest")
    except ManifestError as error:
        raise Unanswerable("; ".join(map(str, error.problems[:3]))) from None
    workload_documents = [document for document in documents if brings_pods(document.object)]
    if not (workload_documents or question.removed or question.added):
        raise Unanswerable("the manifest has no pod and no workload: paste one as for `kubectl apply`")
    other_documents = [document for document in documents if document not in workload_documents]
    snapshot, refused, state = _arrived(reading, workload_documents, other_documents)
    templates = {template.metadata.key: template for template in snapshot.templates}
    with_templates = reading.with_types({ResourceClaimTemplate: templates})
    quota_forecasts = foretell_in(with_templates, [document.object for document in workload_documents], {}, state)
    quotas = tuple(
        QuotaEffect(line=str(line), exceeded=line.exceeded) for quota in quota_forecasts for line in quota.lines
    )
    try:
        snapshot = change_nodes(snapshot, question.removed, question.added)
    except Broken as error:
        raise Unanswerable(f"{error.message}: {error.remedy}") from None
    # Leave out the removed nodes' pods of hidden namespaces: their claims are not known, so the simulation cannot place these pods again.
    snapshot = msgspec.structs.replace(
        snapshot, pods=tuple([pod for pod in snapshot.pods if pod.spec.node_name or pod.metadata.namespace != OTHERS])
    )
    pending_count = len(pending(snapshot.pods))
    if pending_count > MAX_PODS:
        raise Unanswerable(
            f"{pending_count} pods are more than {MAX_PODS}: request fewer, or use `drawbridge simulate`"
        )
    present_keys = {pod.metadata.key for pod in snapshot.pods}
    waiting = [
        pod for pod in pending(reading.pods.values()) if waits_for_node(pod) and pod.metadata.key not in present_keys
    ]
    waiting_to_place = waiting[: MAX_PODS - pending_count]

    def check_time() -> None:
        if is_late():
            raise Unanswerable(
                "the simulation takes too long for a page: name fewer pods, or use `drawbridge simulate`"
            )

    if question.added:
        snapshot = msgspec.structs.replace(snapshot, pods=(*snapshot.pods, *waiting_to_place))
        simulation = place(snapshot, state, refused, check_time=check_time)
    else:
        simulation = place(snapshot, state, refused, ahead=waiting_to_place, check_time=check_time)
    left_out = len(waiting) - len(waiting_to_place)
    return WhatIf(pods=simulation.pods, placed=simulation.totals.placed, quotas=quotas, left=left_out)


def _arrived(
    reading: Reading,
    workload_documents: Sequence[Document],
    other_documents: Sequence[Document],
) -> tuple[Snapshot, dict[str, Reason], State]:
    """Return the snapshot with the pasted pods, the pods that the webhook refuses, and the webhook's state. Raise Unanswerable."""
    pasted = TypedObjects.read(other.object for other in other_documents)
    if pasted.unreadable:
        raise Unanswerable(str(pasted.unreadable[0].error))
    objects = (*reading.objects, *(other.object for other in other_documents))
    typed = TypedObjects((*reading.typed, *pasted))
    state = msgspec.structs.replace(reading, objects=objects, typed=typed).state
    arrived_pods = arrivals((document.object for document in workload_documents), state)
    if len(arrived_pods.pods) > MAX_PODS:
        raise Unanswerable(
            f"{len(arrived_pods.pods)} pods are more than {MAX_PODS}: request fewer, or use `drawbridge simulate`"
        )
    claims, templates = pasted.of_type(ResourceClaim), pasted.of_type(ResourceClaimTemplate)
    return beside(reading, arrived_pods, claims=claims, templates=templates), arrived_pods.refused, state
