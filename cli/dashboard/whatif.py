"""What would become of pods that are pasted: the webhook's answer, then the simulation's, on the fleet as it was read. Pure.

Nothing is made. A question is a text; packed it stands in an address, so that it can be sent to others.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from allocator.simulation import PodOutcome, Snapshot, simulate
from cli.arrivals import arrivals, brings_pods
from cli.devices import key
from cli.loading import state_of
from cli.simulated import asking, why
from cluster import manifests
from cluster.manifests import ManifestError
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate, defaults
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.answer import Answer
    from allocator.strategies import Chosen
    from cli.dashboard.picture import Sight
    from cluster.manifests import Document
    from dra.stock import Stock

LONGEST = 32 << 10  # bytes of a question
MOST_PODS = 50
STRATEGY: Final = "first-fit"
_TOO_LONG: Final = f"a question has at most {LONGEST >> 10} KiB: leave other objects out, or use `drawbridge simulate`"
_NOT_WHOLE: Final = "the address is not whole: copy all of it, or paste the manifest"


class Unanswerable(Exception):  # noqa: N818  it is an answer, of a kind
    """A question that has no answer here; why, and what to do."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of each pod."""

    pods: tuple[PodOutcome, ...]
    placed: int


def pack(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(packed: str) -> str:
    """Give the text of an address. Raise Unanswerable for what was not packed here, or unpacks to too much."""
    try:
        data = base64.urlsafe_b64decode(packed.encode() + b"=" * (-len(packed) % 4))
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, LONGEST + 1)
        told = text.decode(errors="replace")
    except (binascii.Error, zlib.error, ValueError):
        raise Unanswerable(_NOT_WHOLE) from None
    if len(text) > LONGEST:
        raise Unanswerable(_TOO_LONG)
    if not unpacking.eof or unpacking.unused_data:
        raise Unanswerable(_NOT_WHOLE)
    return told


def what_if(looked: Sight, text: str, is_late: Callable[[], bool]) -> WhatIf:
    """Answer a question. Raise Unanswerable."""
    if len(text.encode()) > LONGEST:
        raise Unanswerable(_TOO_LONG)
    try:
        documents = manifests.parse(text, "manifest")
    except ManifestError as error:
        raise Unanswerable("; ".join(map(str, error.problems[:3]))) from None
    coming = [one for one in documents if brings_pods(one.object)]
    if not coming:
        raise Unanswerable("no pod and no workload is there: paste one as for `kubectl apply`")
    return _answer(looked, coming, [one for one in documents if one not in coming], is_late)


def _answer(
    looked: Sight, coming: Sequence[Document], others: Sequence[Document], is_late: Callable[[], bool]
) -> WhatIf:
    scene = looked.scene
    gathered = msgspec.structs.replace(
        scene.gathered, objects=(*scene.gathered.objects, *(one.object for one in others))
    )
    state, _ = state_of(gathered, looked.configuration, scene.features)
    came = arrivals(coming, state)
    if len(came.pods) > MOST_PODS:
        raise Unanswerable(
            f"{len(came.pods)} pods are more than {MOST_PODS}: ask for fewer replicas, or use `drawbridge simulate`"
        )
    refused = [PodOutcome(pod=pod, node=None, summary=reason) for pod, reason in came.refused.items()]
    claims, templates = list(scene.stock.claims.values()), list(scene.templates.values())
    pods: dict[str, Pod] = {}
    try:
        for one in came.pods:
            pod = convert(one, Pod)
            pods[key(pod)] = pod
        for obj in (*(one.object for one in others), *came.templates):
            match obj.get("kind"):
                case "ResourceClaim":
                    claims.append(defaults.claim(convert(obj, ResourceClaim)))
                case "ResourceClaimTemplate":
                    templates.append(defaults.template(convert(obj, ResourceClaimTemplate)))
    except WireError as error:
        raise Unanswerable(str(error)) from None
    running = [pod for name, pod in scene.pods.items() if pod.spec.node_name and not pod.has_ended and name not in pods]
    ask = asking(STRATEGY, None, scene.stock)

    def hurry() -> None:
        if is_late():
            raise Unanswerable("it takes longer than a page may: ask for fewer pods, or use `drawbridge simulate`")

    def ask_in_time(now: Stock, node: str, wanted: Sequence[ResourceClaim]) -> Chosen:
        hurry()
        return ask(now, node, wanted)

    def why_in_time(now: Stock, node: str, wanted: Sequence[ResourceClaim], refused: Answer) -> Answer:
        hurry()
        return why(now, node, wanted, refused)

    snapshot = Snapshot(scene.stock, (*running, *pods.values()), tuple(claims), tuple(templates), quotas=scene.quotas)
    found = simulate(snapshot, ask=ask_in_time, why=why_in_time)
    return WhatIf(pods=(*found.pods, *refused), placed=found.totals.placed)
