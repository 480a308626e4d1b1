"""Cases for rules and policies: a pod, an inventory, and what is expected of it. Values in, values out.

A file has cases; each names a pod (or any workload) and what becomes of it under a configuration and an inventory.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from cli.arrivals import arrivals, makings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import Translation

    _Object = dict[str, Any]

FILE = "drawbridge-test.yaml"


class CaseOutcome(StrEnum):
    """What becomes of a pod: the worst that happens to any of its keys."""

    REFUSED = "refused"
    LEFT = "left"
    TRANSLATED = "translated"
    UNTOUCHED = "untouched"


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is expected; what is not named is not looked at."""

    outcome: CaseOutcome | None = None
    # Of a refusal.
    code: str = ""
    # How many devices of which DeviceClass the claims ask for, of one pod of each template.
    devices: dict[str, int] | None = None
    # Keys that are left as they are.
    left: list[str] | None = None
    # A part of any text that a user gets.
    says: str = ""
    # Whether the allocator places every pod on the inventory.
    fits: bool | None = None


class ExpectedCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pod, what there is besides, and what is expected. Paths begin at the file of the case."""

    name: str
    # A file of pods or workloads, or the object itself.
    pod: str | dict[str, Any]
    expect: Expected
    inventory: list[str] = []


class Cases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of cases, with what all of them share."""

    cases: list[ExpectedCase]
    config: str = ""
    inventory: list[str] = []


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case; without `problems` it passed."""

    file: str
    line: int
    name: str
    passed: bool
    problems: tuple[str, ...] = ()


def problems_of(
    expected: Expected, pods: Sequence[Document], around: Sequence[Document], state: State
) -> Iterator[str]:
    """Say what is not as it was expected."""
    from webhook.admission import decide_object
    from webhook.dialects import Action

    made = [making.pod for one in pods for making in makings(one.object)]
    done = [decide_object(pod, state) for pod in made]
    found = outcome_of(done)
    texts = [
        text for one in done for text in (*map(str, one.refusals), *one.warnings, *(d.detail for d in one.decisions))
    ]
    if expected.outcome not in (None, found):
        why = next((text for one in done for text in (*map(str, one.refusals), *one.warnings)), "")
        yield f"expected {expected.outcome}, and it is {found}{f': {why}' if why else ''}"
    codes = sorted({denial.code for one in done for denial in one.refusals})
    if expected.code and expected.code not in codes:
        yield f"expected the refusal {expected.code}, and there is {', '.join(codes) or 'none'}"
    if expected.devices is not None and expected.devices != (devices := dict(devices_of(made, done))):
        yield f"expected the devices {_listed(expected.devices)}, and they are {_listed(devices)}"
    if expected.left is not None:
        left = sorted({one.key for each in done for one in each.decisions if one.action is Action.LEFT})
        if sorted(expected.left) != left:
            yield f"expected that {', '.join(sorted(expected.left)) or 'no key'} is left, and {', '.join(left) or 'none'} is"
    if expected.says and not any(expected.says in text for text in texts):
        yield f"expected a text with {expected.says!r}, and there is {'; '.join(filter(None, texts)) or 'none'}"
    if expected.fits is not None:
        unplaced = list(_unplaced(pods, around, state))
        if expected.fits and unplaced:
            yield f"expected that it fits: {'; '.join(unplaced)}"
        if not expected.fits and not unplaced:
            yield "expected that it does not fit, and every pod is placed"


def outcome_of(done: Sequence[Translation]) -> CaseOutcome:
    """Say what becomes of the pods of a case."""
    if any(one.refusals for one in done):
        return CaseOutcome.REFUSED
    if any(one.changed for one in done):
        return CaseOutcome.TRANSLATED
    return CaseOutcome.LEFT if any(one.decisions for one in done) else CaseOutcome.UNTOUCHED


def devices_of(pods: Sequence[_Object], done: Sequence[Translation]) -> Counter[str]:
    """Count devices by class, as the new claims of pods ask for them; of alternatives the first."""
    from cluster.patch import apply_json_patch
    from dra.objects import ResourceClaimTemplateSpec
    from dra.wire import convert

    found: Counter[str] = Counter()
    for pod, one in zip(pods, done, strict=True):
        for entry in apply_json_patch(pod, one.operations)["spec"].get("resourceClaims") or ():
            spec = one.templates.get(entry.get("resourceClaimTemplateName"))
            if spec is None:
                continue  # a claim that the pod came with
            for request in convert(spec, ResourceClaimTemplateSpec).spec.devices.requests:
                one_of = request.exactly or request.first_available[0]
                found[one_of.device_class_name] += one_of.count or 1
    return found


def _listed(devices: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(devices.items())) or "none"


def _unplaced(pods: Sequence[Document], around: Sequence[Document], state: State) -> Iterator[str]:
    """Say of each pod that the allocator does not place why."""
    from allocator.simulation import Snapshot, simulate
    from allocator.strategies import serve
    from cli.devices import read_objects
    from dra.objects import DeviceQuota, Pod, ResourceClaim, ResourceClaimTemplate, defaults
    from dra.wire import convert

    given = read_objects(around)
    came = arrivals(pods, state)
    yield from (f"{name}: {reason}" for name, reason in came.refused.items())
    made = [defaults.template(convert(one, ResourceClaimTemplate)) for one in came.templates]
    snapshot = Snapshot(
        given.stock(state.features.server),
        (*given.of(Pod), *(convert(one, Pod) for one in came.pods)),
        tuple(given.of(ResourceClaim)),
        (*given.of(ResourceClaimTemplate), *made),
        (),
        tuple(given.of(DeviceQuota)),
    )
    for one in simulate(snapshot, ask=serve).pods:
        if one.node is None:
            yield f"{one.pod}: {one.summary or 'no node'}"
