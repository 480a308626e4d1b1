"""Decides whether an object requests devices. An annotation, a label or a selector alone requests nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.loading import Object, inside, text
from dra.objects import blocks
from dra.raw import containers_of, items
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.placement import STRANDED
from webhook.translate import paths, pods_in, view_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from analysis.gitops import Patched
    from cluster.manifests import Document
    from dra.objects import DeviceRequest, DeviceToleration
    from dra.stock import Stock
    from webhook.state import Configuration, State
    from webhook.translate import Decision


def requests_devices(obj: Object, decisions: Sequence[Decision], configuration: Configuration) -> bool:
    """Return whether a decision about an object is about a request, or the object's pods name claims."""
    pods, templates = pods_in(obj), tuple(paths(obj))
    # Keys outside of pod templates count. All keys count if there is no pod template, or if one requests devices.
    all_keys_count = not pods or any(view_pod(pod, configuration).asks_for_devices for pod in pods)
    is_request = (
        decision.dialect
        or decision.potential_outcome
        or decision.outcome is not Outcome.LEFT
        or decision.amount
        or decision.key.startswith("/dev/")
        or (decision.code in ("", STRANDED) and (all_keys_count or not decision.pointer.startswith(templates)))
        for decision in decisions
    )
    return any(is_request) or (bool(decisions) and any(map(has_claims, pods)))


def with_other_requests(parts: Iterable[Patched], documents: Sequence[Document], state: State) -> Iterator[Patched]:
    """Yield the objects whose requests patches change; `documents` are those of the tree."""
    for part in parts:
        base = {} if part.is_new else documents[part.number].placed
        written, made = (decide_object(obj, state).decisions for obj in (base, part.document.placed))
        if _requests_of(written) != _requests_of(made):
            patched = decisions_of_patches(part.document, made)
            key, pointer = (patched[0].key, patched[0].pointer) if patched else ("", "")
            yield part._replace(key=key, pointer=pointer)


def _requests_of(decisions: Iterable[Decision]) -> set[tuple[str, str, str]]:
    return {(decision.container, decision.key, decision.amount) for decision in decisions}


def decisions_of_patches(document: Document, decisions: Iterable[Decision]) -> list[Decision]:
    """Return those decisions about an object that are about what stands in patches."""
    return [decision for decision in decisions if document.is_patched(decision.pointer)]


def bodies_in(claim_spec: Object) -> Iterator[Object]:
    """Yield `exactly` and the alternatives of each request of a claim; {} for a request without `exactly`."""
    for request in items(inside(claim_spec, "devices"), "requests"):
        yield from (inside(request, "exactly"), *items(request, "firstAvailable"))


def classes_in(claim_spec: Object) -> set[str]:
    """Return the DeviceClasses of a claim's requests."""
    return {text(body.get("deviceClassName")) for body in bodies_in(claim_spec)} - {""}


def has_claims(pod: Object) -> bool:
    """Return whether a pod names claims or templates of claims."""
    return bool(inside(pod, "spec").get("resourceClaims"))


def containers_in(obj: Object) -> Iterator[Object]:
    """Yield the containers of an object's pods."""
    for pod in pods_in(obj):
        yield from containers_of(inside(pod, "spec"))


def kept_by(
    request: DeviceRequest, drivers: Mapping[str, str], taint_of: Callable[[str, tuple[DeviceToleration, ...]], str]
) -> list[tuple[str, str]]:
    """Return the drivers and taints that keep a request from every device; [] if one of its alternatives may get a device."""
    taints: list[tuple[str, str]] = []
    for alternative in request.alternatives.values():
        driver = drivers.get(alternative.device_class_name, "")
        taint = taint_of(driver, alternative.tolerations) if driver else ""
        if not taint:
            return []
        taints.append((driver, taint))
    return taints


def taint_on_all(stock: Stock, driver: str, tolerations: tuple[DeviceToleration, ...] = ()) -> str:
    """Return a taint that keeps a claim with these tolerations from a device, if every device of the driver has such a taint; else ""."""
    shared = ""
    for page in stock.every_newest_page():
        for device in page.devices if page.slice.spec.driver == driver else ():
            taint = next((taint.key for taint in device.taints if blocks(taint, tolerations)), "")
            if not taint:
                return ""
            shared = shared or taint
    return shared
