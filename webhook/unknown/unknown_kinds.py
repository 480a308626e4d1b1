"""Decides about device requests outside of pod templates: in kinds whose controller builds its pods itself, and in unknown kinds.

    spec.predictor.model.resources    KServe creates a container with these resources: decided like a pod
    spec.driver.gpu.name              a field of Spark, from which its pods get the key: left
    rayStartParams.num-gpus           an argument of Ray, not a request: left
    values.app.resources              limits in values of a chart, of Flux or Argo CD: decided like a pod
    podSpecPatch, values, manifest,   a text with a key and an amount: reported, not parsed
      args of a container
    spec.anything of an unknown kind  reported, not interpreted

These objects are never changed. The webhook translates their pods.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dra.finding import stated
from dra.raw import Object, mapping
from webhook.dialects import Outcome, Position
from webhook.reading import PlaceRole
from webhook.translate import (
    RENDERED,
    Decision,
    PodVerdict,
    group_kind,
    kind_of,
    merge,
    name_of,
    namespace_of,
    paths,
    resolve_pointer,
    right_kind,
)
from webhook.unknown.unanswered_requests import not_understood
from webhook.unknown.uses import ANNOTATIONS, CUSTOM, OF_TEXTS, How, Use, uses_outside
from webhook.unknown.words import PARTS

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.state import State

_FIRST = re.compile(r"/(?:spec/)?")
_GPU, _GPU_TYPE = "gpu", "gpuType"
_REMEDY = "if it creates pods, the webhook decides on them: run `drawbridge translate` on one of them"
_RENDER = "run `drawbridge translate` on what it renders (`helm template CHART --values FILE`); otherwise the webhook decides on its pods"
_BY_HAND = "run `drawbridge translate` on the text, saved as a file, and copy the result; otherwise the webhook decides on its pods"
# Groups of the kinds that render a chart with values.
_OF_CHARTS = ("argoproj.io", "helm.toolkit.fluxcd.io")
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_LONGEST = 63  # letters of a container's name


class MadePod(NamedTuple):
    """A pod that a controller would create from the requests of an object."""

    pod: Object
    pointers: dict[str, str]  # of the requests in the object, by key; that of "" is the pointer to their map


class UnknownKindDecision(NamedTuple):
    """Decisions about the keys outside of pod templates, and the pods that a controller would create from such requests."""

    verdict: PodVerdict
    pods: dict[str, MadePod]  # by the readable path of their requests
    reader: str = ""  # the program that reads the requests


def decide_unknown_kind(obj: Object, state: State) -> UnknownKindDecision:
    uses = list(uses_outside(obj, state, paths(obj)))
    full_kind = group_kind(obj)
    has_values = full_kind in RENDERED and full_kind[0] in _OF_CHARTS
    known = RENDERED[full_kind] if has_values else kind_of(obj)
    reader = (known.reads_of(obj) if known else "") or f"the controller that creates the pods of {full_kind[1]}"
    verdicts: list[PodVerdict] = []
    pods: dict[str, MadePod] = {}
    for use in uses:
        shown_path, role = _readable(use.where), use.place.role
        resources = _resources(obj, use, known.gpu) if known and use.how is not How.TEXT else None
        if use.how is How.UNREAD:
            verdicts.append(_verdict(obj, use, use.detail, "D215"))
        elif role in (PlaceRole.SUPPLIES, PlaceRole.REPEATS) or use.is_beside_request(uses):
            continue
        elif not role.may_request:
            verdicts.append(_verdict(obj, use, use.place.why))
        elif use.where == ANNOTATIONS and state.configuration.word(Position.ANNOTATION, use.key):
            verdicts.append(_verdict(obj, use, "it is read on pods: write it into the pod template"))
        elif use.where == ANNOTATIONS:
            verdicts.append(_verdict(obj, use._replace(where=""), not_understood(use.key).detail, "D211"))
        elif use.how is How.TEXT or known is None or (has_values and resources is None):
            why, remedy = _unknown_use(obj)
            reason = f"it is part of the text in {use.detail}" if use.how is How.TEXT else why
            verdicts.append(_verdict(obj, use, f"not checked: {reason}", "D211", remedy))
        elif resources is None:
            verdicts.append(_verdict(obj, use, f"it stays, because it is read by {reader}"))
        elif shown_path in pods:
            pods[shown_path].pointers.setdefault(use.key, use.pointer)
        elif any(amount not in (0, "0") for part in resources.values() for amount in part.values()):
            # A minimal pod with these resources, as the controller would create it.
            label = _NO_LABEL.sub("-", shown_path.lower()).strip("-")[-_LONGEST:].strip("-") or "main"
            container: Object = {"name": label, "image": label, "resources": dict(resources)}
            pod: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": label, "namespace": namespace_of(obj)},
                "spec": {"containers": [container]},
            }
            pods[shown_path] = MadePod(pod, {"": use.where, use.key: use.pointer})
            stays = f"{shown_path} stays: it is read by {reader}; the webhook translates the pods"
            verdicts.append(PodVerdict(notes=(stays,)))
    merged = merge(verdicts)
    unique: dict[Decision, Decision] = {}  # a key may be among limits and requests
    for decision in merged.decisions:
        unique.setdefault(replace(decision, amount="", pointer=""), decision)
    return UnknownKindDecision(replace(merged, decisions=tuple(unique.values())), pods, reader)


def _verdict(obj: Object, use: Use, detail: str, code: str = "", remedy: str = "") -> PodVerdict:
    """Return a verdict with a decision: left without a code, else unknown, with a warning."""
    name, container = name_of(obj), _readable(use.where)
    outcome = Outcome.UNKNOWN if code else Outcome.LEFT
    decision = Decision(
        name, container, "", use.key, outcome, detail, code, remedy, amount=use.amount, pointer=use.pointer
    )
    text = ": ".join(filter(None, (container, use.key, detail)))
    return PodVerdict(decisions=(decision,), notes=(str(stated(code, text, remedy)),) if code else ())


def _unknown_use(obj: Object) -> tuple[str, str]:
    """Return why it is unknown how an object uses a key, and the remedy."""
    group, kind = full_kind = group_kind(obj)
    if full_kind in RENDERED:
        return f"it is read by {RENDERED[full_kind].reads}", _RENDER if group in _OF_CHARTS else _REMEDY
    if right_name := right_kind(obj):
        return f"{group} has no kind {kind}, it is called {right_name}", f"write `kind: {right_name}`"
    reason = f"drawbridge does not know how {kind or 'an object without a kind'} uses it"
    return reason, _BY_HAND if full_kind in OF_TEXTS else _REMEDY


def _resources(obj: Object, use: Use, gpu: str) -> dict[str, dict[str, Json]] | None:
    """Return the container resources that the controller makes from a use; None if it makes none from this key.

    Names without a domain are the controller's own. Dynamo and Yatai turn `gpu` into the key of `WorkloadKind.gpu`, unless Dynamo's gpuType
    names another, and copy the keys under `custom`.
    """
    parent, _, last = use.where.removesuffix(CUSTOM).rpartition("/")
    resources = mapping(resolve_pointer(obj, parent))
    is_gpu = bool(gpu) and use.key == _GPU and last in PARTS
    if "/" not in use.key and not (is_gpu and not any(_GPU_TYPE in mapping(resources.get(part)) for part in PARTS)):
        return None
    if last not in PARTS:
        quantity = mapping(resolve_pointer(obj, use.where)).get("quantity")
        return None if quantity is None else {"limits": {use.key: quantity}}
    requested: dict[str, dict[str, Json]] = {}
    for part in PARTS:
        amounts = mapping(resources.get(part))
        own = {gpu: amounts[_GPU]} if is_gpu and _GPU in amounts else {}
        amounts = {**own, **amounts, **mapping(amounts.get(CUSTOM[1:]))}
        requested[part] = {key: amount for key, amount in amounts.items() if "/" in key}
    return requested


def _readable(where: str) -> str:
    """Return a pointer in a readable form: predictor/model."""
    inner = _FIRST.sub("", where, count=1).removesuffix(CUSTOM)
    for end in (*PARTS, "resources"):
        inner = inner.removesuffix(f"/{end}")
    return inner
