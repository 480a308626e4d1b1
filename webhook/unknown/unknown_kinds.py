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
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dra.finding import stated
from dra.objects import template_site
from dra.pointer import escape
from dra.raw import Object, mapping, members, strings, text
from webhook.dialects import Outcome, Position
from webhook.reading import PlaceRole, place_in, place_of, repeated_members
from webhook.translate import (
    OWN_GROUP,
    READ_BY_OTHERS,
    RENDERED,
    Decision,
    PodVerdict,
    bodies,
    group_kind,
    kind_of,
    merge,
    name_of,
    namespace_of,
    paths,
    resolve_pointer,
    right_kind,
    view_pod,
)
from webhook.unknown.unanswered_requests import (
    BEYOND,
    DEVICE_FILE,
    MAX_KEYS,
    RUNTIMES,
    adds_devices,
    is_about_devices,
    is_own,
    judge_resource,
    not_understood,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dra.wire import Json
    from webhook.state import State

    _Member = tuple[str, Json]

# Values of one object that are read.
VALUES = 100_000
_UNSEEN = f"not checked: the object has more than {VALUES:,} values before it"
_FIRST = re.compile(r"/(?:spec/)?")
_PARTS = ("limits", "requests")
_CUSTOM = "/custom"  # in Yatai's and Dynamo's kinds, below limits and requests: resources without a field of their own
# The part of a path of variables, pod settings or volumes below the container, pod or chart that has them.
_PART_OF_OWNER = re.compile(r"/(?:env|pod|defaultPodOptions|persistence)/.*")
_GPU, _GPU_TYPE = "gpu", "gpuType"
# Names of fields with an amount of devices and without a resource name: `gpus`, `numGpus`, `gpu_count`, `vgpu`, `workerGPUs`, `gpusPerWorker`.
_DEVICES = r"v?(?:gpu|npu|tpu|hpu|xpu|dcu|gcu|mlu|fpga|accelerator|neuron[-_]?core)s?"
_FIELD = re.compile(
    r"(?:(?:num|n|number[-_]?of|total|request|limit|required|entrypointnum|nvidia|amd|intel|worker|replica|head|master|driver|executor)s?[-_]?)?"
    rf"{_DEVICES}"
    r"(?:[-_]?(?:count|num|number|quantity|amount|limit|request|memory|mem|fraction|portion|share|percent|percentage)s?"
    r"|[-_]?per[-_]?(?:worker|replica|pod|task|process|container))?",
    re.IGNORECASE,
)
# Names of fields with one or more objects that describe devices, and names of fields of such an object with the number of devices.
_OBJECT = re.compile(rf"{_DEVICES}(?:memory|portion|fraction|devices|resources)?", re.IGNORECASE)
_NUMBERS = ("count", "number", "quantity", "value", "quota", "limit", "size")
_POSITIVE = re.compile(r"0*(?:\.0*)?[1-9].*")
_ANNOTATIONS = "/metadata/annotations"
_REMEDY = "if it creates pods, the webhook decides on them: run `drawbridge translate` on one of them"
_RENDER = "run `drawbridge translate` on what it renders (`helm template CHART --values FILE`); otherwise the webhook decides on its pods"
_BY_HAND = "run `drawbridge translate` on the text, saved as a file, and copy the result; otherwise the webhook decides on its pods"
# Groups of the kinds that render a chart with values.
_OF_CHARTS = ("argoproj.io", "helm.toolkit.fluxcd.io")
# Kinds with arbitrary texts. A text that contains a part of a pod has limits or requests.
_OF_TEXTS = (("", "ConfigMap"), ("", "Secret"))
_OF_POD = re.compile(r"\b(?:limits|requests)\b")
# Paths of maps with labels, selectors and annotations, whose names request nothing.
_LABELS = re.compile(r"(?:label|selector|annotation|affinity)[^/]*(?:/|$)", re.IGNORECASE)
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_LONGEST = 63  # letters of a container's name
_QUALIFIED = re.compile(r"[\w.-]{1,253}/[\w.-]{1,63}")  # an image may have more slashes and a colon
_NAMES = ("name", "resourceName", "rdmaResourceName", "deviceName", "identifier", "processingResourceType", "type")
# A key and its amount in a text of YAML, JSON or a template for them. The pattern does not backtrack, so long texts take linear time.
_IN_TEXT = re.compile(r"""(?<![\w.-])([\w.-]{1,253}/[\w.-]{1,63})["']?[ \t]*:[ \t]*["']?(?=[1-9$]|\{[{\w])""")
# Where a comment of YAML begins; inside a string a `#` mostly has no space before it.
_COMMENT = re.compile(r"(?:^|[ \t])#")
_QUOTED = re.compile(r""""([\w.-]{1,253}/[\w.-]{1,63})\"""")
# A resource name in the text of a compiled step of Kubeflow Pipelines.
_NAMED_IN_TEXT = re.compile(r"""\b(?:name|resourceType)["']?[ \t]*:[ \t]*["']?([\w.-]{1,253}/[\w.-]{1,63})""")


class Mention(NamedTuple):
    """A key outside of pod templates, and the pointer to its map.

    `beyond` is the reason if this key and all further keys are not checked. `text` is the member of the map whose text contains the key.
    """

    where: str
    key: str
    beyond: str = ""
    text: str = ""


class UnknownKindDecision(NamedTuple):
    """Decisions about the keys outside of pod templates, and the pods that a controller would create from such requests."""

    verdict: PodVerdict
    pods: dict[str, Object]  # by the readable path of their requests
    reader: str = ""  # the program that reads the requests


def decide_unknown_kind(obj: Object, state: State) -> UnknownKindDecision:
    mentions = list(find_outside_templates(obj, state, paths(obj)))
    mentions = [mention for mention in mentions if not _is_beside_request(mention, mentions)]
    name = name_of(obj)
    full_kind = group_kind(obj)
    has_values = full_kind in RENDERED and full_kind[0] in _OF_CHARTS
    known = RENDERED[full_kind] if has_values else kind_of(obj)
    reads = known.reads_of(obj) if known else ""
    reader = reads or f"the controller that creates the pods of {full_kind[1]}"
    verdicts: list[PodVerdict] = []
    pods: dict[str, Object] = {}
    for mention in mentions:
        shown_path = _readable(mention.where)
        if mention.beyond:
            verdicts.append(
                _unknown_verdict(
                    Decision(name, shown_path, "", mention.key, Outcome.UNKNOWN, mention.beyond, code="D215")
                )
            )
            continue
        place = place_in(obj, mention.where)
        if place.role in (PlaceRole.SUPPLIES, PlaceRole.REPEATS):
            continue
        if not place.role.may_request:
            verdicts.append(_left(name, mention, place.why))
            continue
        if mention.where == _ANNOTATIONS and state.configuration.word(Position.ANNOTATION, mention.key):
            verdicts.append(_left(name, mention, "it is read on pods: write it into the pod template"))
            continue
        if mention.where == _ANNOTATIONS:
            verdicts.append(_unknown_verdict(replace(not_understood(mention.key), object=name)))
            continue
        resources = _resources(obj, mention, known.gpu) if known and not mention.text else None
        if mention.text or known is None or (has_values and resources is None):
            why, remedy = _unknown_use(obj)
            reason = f"not checked: {f'it is part of the text in {mention.text}' if mention.text else why}"
            unknown = Decision(name, shown_path, "", mention.key, Outcome.UNKNOWN, reason, code="D211", remedy=remedy)
            verdicts.append(_unknown_verdict(unknown, remedy))
            continue
        if resources is None:
            verdicts.append(_left(name, mention, f"it stays, because it is read by {reader}"))
        elif shown_path not in pods and any(
            amount not in (0, "0") for part in resources.values() for amount in part.values()
        ):
            # A minimal pod with these resources, as the controller would create it.
            label = _NO_LABEL.sub("-", shown_path.lower()).strip("-")[-_LONGEST:].strip("-") or "main"
            container: Object = {"name": label, "image": label, "resources": dict(resources)}
            pods[shown_path] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": label, "namespace": namespace_of(obj)},
                "spec": {"containers": [container]},
            }
            stays = f"{shown_path} stays: it is read by {reader}; the webhook translates the pods"
            verdicts.append(PodVerdict(notes=(stays,)))
    merged = merge(verdicts)
    unique_decisions = tuple(dict.fromkeys(merged.decisions))  # a key may be among limits and requests
    return UnknownKindDecision(replace(merged, decisions=unique_decisions), pods, reader)


def _is_beside_request(mention: Mention, mentions: Sequence[Mention]) -> bool:
    """Return whether a mention is a variable, runtime class or device file of a container, pod or chart with device requests."""
    if (
        mention.key != "runtimeClassName"
        and not mention.key.endswith("_VISIBLE_DEVICES")
        and mention.key[:5] != "/dev/"
    ):
        return False
    owner = _PART_OF_OWNER.sub("/", mention.where + "/")
    return any(
        other.where.startswith(owner) and other.where.removesuffix(_CUSTOM).rpartition("/")[2] in _PARTS
        for other in mentions
    )


def counts_keys(obj: Object, state: State) -> bool:
    """Return whether an object only limits, describes, offers or supplies devices: nothing in it requests."""
    if not place_of(obj).role.may_request:
        return True
    roles = [] if paths(obj) else [place_in(obj, mention.where).role for mention in find_outside_templates(obj, state)]
    return bool(roles) and not any(role.may_request for role in roles)


def asks_in_unknown_kind(obj: Object, state: State) -> bool:
    mentions = find_outside_templates(obj, state) if place_of(obj).role.may_request else ()
    return any(place_in(obj, mention.where).role.may_request for mention in mentions)


def find_outside_templates(obj: Object, state: State, inside: Collection[str] = ()) -> Iterator[Mention]:
    """Yield the keys of an object outside of its pod templates (at the pointers `inside`), and in texts of the templates' containers.

    Keys in commands and arguments of containers come first, then annotations, then the rest in the order of the object.
    """
    full_kind, (role, _, _, pool) = group_kind(obj), place_of(obj)
    known = kind_of(obj)
    if role is PlaceRole.SUPPLIES:
        return
    if full_kind in _OF_TEXTS:
        yield from islice(_in_texts(obj, state), MAX_KEYS)
        return
    yield from islice(_in_arguments(obj, state, inside), MAX_KEYS)
    if known or (inside and "" not in inside):
        yield from islice(_in_annotations(obj, state, inside), MAX_KEYS)
    is_own = OWN_GROUP.fullmatch(full_kind[0]) and role is PlaceRole.UNKNOWN and known is None
    if is_own or template_site(obj) is not None:
        return  # such kinds have device requests only in pod templates
    profile = known.profile if known and not inside else ""
    if pool and (named := text(resolve_pointer(obj, pool[0]))):
        yield Mention(pool[0].rpartition("/")[0], _pool_key(pool[1], named, state))
    unvisited: list[_Member] = [("", {name: obj[name] for name in bodies(obj)})]
    repeated = repeated_members(obj)
    value_count = mention_count = 0
    while unvisited:
        where, value = unvisited.pop()
        if where in inside:
            continue
        if value_count >= VALUES:
            yield Mention(where, "", _UNSEEN)
            return
        members: list[_Member] = []
        if isinstance(value, dict):
            members = [member for member in value.items() if member[0] not in repeated]
        elif isinstance(value, list):
            members = [(str(index), member) for index, member in enumerate(value)]
        value_count += 1 + len(members)
        for member in members:
            mention = _mention(where, member, state, is_named=isinstance(value, dict))
            # KubeAI's profile `cpu` has no devices.
            if profile and member[0] == profile and str(member[1]).partition(":")[0] not in ("", "cpu"):
                mention = Mention(where, profile)
            if mention and mention_count == MAX_KEYS:
                yield mention._replace(beyond=BEYOND)
                return
            if mention:
                mention_count += 1
                yield mention
        below = [(f"{where}/{escape(name)}", member) for name, member in members if isinstance(member, dict | list)]
        unvisited += reversed(below)


def _pool_key(domain: str, pool: str, state: State) -> str:
    """Return the key of a pool; the pool's name alone if neither the operator nor a node shows the domain."""
    if "/" in pool:
        return pool
    if domain := domain or state.fleet.installed.network.prefix:
        return f"{domain}/{pool}"
    offered = [key for key in state.fleet.handed_out_anywhere if key.endswith(f"/{pool}")]
    return offered[0] if len(offered) == 1 else pool


def amounts_in(written: str) -> Iterator[tuple[str, int]]:
    """Yield the keys with an amount in a text of YAML, JSON or a template for them, with their offsets. Comments are skipped."""
    begin = 0
    for line in written.split("\n"):
        for match in _IN_TEXT.finditer(_COMMENT.split(line, 1)[0]):
            yield match[1], begin + match.start()
        begin += len(line) + 1


def _in_annotations(obj: Object, state: State, templates: Collection[str]) -> Iterator[Mention]:
    """Yield the annotations of a workload that look like device requests, or whose value names a resource of devices."""
    asks = any(view_pod(resolve_pointer(obj, path), state.configuration).asks_for_devices for path in templates)
    for name, value in mapping(mapping(obj.get("metadata")).get("annotations")).items():
        if "/" not in name or is_own(name) or (asks and name in READ_BY_OTHERS):
            continue
        named = _QUOTED.findall(text(value))
        if is_about_devices(name.partition("/")[2]) or any(state.configuration.resource(key) for key in named):
            yield Mention(_ANNOTATIONS, name)


def _is_positive(value: Json) -> bool:
    if isinstance(value, str):
        return bool(_POSITIVE.fullmatch(value))
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _mention(where: str, member: _Member, state: State, *, is_named: bool) -> Mention | None:
    """Return the key in a member of a map or a list: its name, its value, or a part of its text. None if it has no key."""
    name, value = member
    if is_named and isinstance(value, dict | list) and _OBJECT.fullmatch(name):
        described = [mapping(item) for item in (value[:MAX_KEYS] if isinstance(value, list) else [value])]
        if not any("/" in str(entry.get(field)) for entry in described for field in _NAMES):
            asks = any(_is_positive(entry.get(field)) for entry in described for field in _NUMBERS)
            asks |= any(entry.get("enabled") is True and "vendor" in entry for entry in described)
            return Mention(where, name) if asks else None
    if is_named and adds_devices(name, value):
        return Mention(where, name)
    if isinstance(value, dict) and (key := _named_amount(where, value)):
        return Mention(f"{where}/{escape(name)}", key)
    if is_named and isinstance(value, dict) and "/" in name and any(map(_is_positive, value.values())):
        return Mention(where, name) if not _LABELS.search(where) and _resource(name, state) else None
    if is_named and name == "path" and isinstance(value, str) and "~1" in value:  # of a JSON patch
        key = _resource(value.rpartition("/")[2].replace("~1", "/"), state)
        return Mention(where, key) if key else None
    if is_named and value is not None and not isinstance(value, dict | list):
        key = ""
        bare = name.removeprefix("requests.").removeprefix("limits.")
        if "/" in bare:
            key = "" if _LABELS.search(where) else _resource(bare, state)
        elif name in _NAMES and isinstance(value, str) and _QUALIFIED.fullmatch(value):
            key = _resource(value, state)
        elif where.rpartition("/")[2] in _PARTS:
            key = _resource(name, state)
        elif name == "runtimeClassName" and value in RUNTIMES:
            key = name
        elif _FIELD.fullmatch(name):
            key = name if _is_positive(value) else ""
        if key:
            return Mention(where, key)
    if not isinstance(value, str) or "/" not in value or _LABELS.search(where):
        return None
    if not is_named and where.endswith("/managedResources"):
        return Mention(where, value) if _resource(value, state) else None
    if DEVICE_FILE(value):
        return Mention(where, value)
    for key, _ in amounts_in(value):
        if state.configuration.resource(key) or key in state.fleet.extended:
            return Mention(where, key, text=name if is_named else f"item {name}")
    for key in _NAMED_IN_TEXT.findall(value) if "resourceType" in value else ():
        if state.configuration.resource(key):
            return Mention(where, key, text=name if is_named else f"item {name}")
    return None


def _named_amount(where: str, value: Object) -> str:
    """Return the name of a variable that adds devices, or of a parameter with a number of devices."""
    name, amount = value.get("name"), value.get("value")
    if adds_devices(name, amount):
        return str(name)
    is_parameter = where.rpartition("/")[2] in ("parameters", "params") and isinstance(name, str)
    return str(name) if is_parameter and _FIELD.fullmatch(str(name)) and _is_positive(amount) else ""


def _in_texts(obj: Object, state: State) -> Iterator[Mention]:
    """Yield the first key of each text of a ConfigMap or Secret that contains a pod's device requests."""
    for field in ("data", "stringData"):
        for name, value in mapping(obj.get(field)).items():
            if not _OF_POD.search(text(value)):
                continue
            keys = (key for key, _ in amounts_in(value) if state.configuration.resource(key))
            if key := next(keys, ""):
                yield Mention(f"/{field}", key, text=name)


def _in_arguments(obj: Object, state: State, templates: Collection[str]) -> Iterator[Mention]:
    """Yield the first key in the command and in the arguments of each container: a script may apply a manifest with this key."""
    for path in sorted(templates):
        spec = mapping(mapping(resolve_pointer(obj, path)).get("spec"))
        for field in ("initContainers", "containers"):
            for number, container in enumerate(members(spec.get(field))):
                for name in ("command", "args"):
                    texts = [value for value in strings(mapping(container), name) if _OF_POD.search(value)]
                    keys = (key for value in texts for key, _ in amounts_in(value) if state.configuration.resource(key))
                    if key := next(keys, ""):
                        yield Mention(f"{path}/spec/{field}/{number}", key, text=name)


def _resource(name: str, state: State) -> str:
    return name if state.configuration.resource(name) or judge_resource(name, state) else ""


def _left(name: str, mention: Mention, reason: str) -> PodVerdict:
    decision = Decision(name, _readable(mention.where), "", mention.key, Outcome.LEFT, reason)
    return PodVerdict(decisions=(decision,))


def _unknown_use(obj: Object) -> tuple[str, str]:
    """Return why it is unknown how an object uses a key, and the remedy."""
    group, kind = full_kind = group_kind(obj)
    if full_kind in RENDERED:
        return f"it is read by {RENDERED[full_kind].reads}", _RENDER if group in _OF_CHARTS else _REMEDY
    if right_name := right_kind(obj):
        return f"{group} has no kind {kind}, it is called {right_name}", f"write `kind: {right_name}`"
    reason = f"drawbridge does not know how {kind or 'an object without a kind'} uses it"
    return reason, _BY_HAND if full_kind in _OF_TEXTS else _REMEDY


def _unknown_verdict(decision: Decision, remedy: str = "") -> PodVerdict:
    """Return a verdict with a decision of outcome unknown, and its warning."""
    text = ": ".join(filter(None, (decision.container, decision.key, decision.detail)))
    return PodVerdict(decisions=(decision,), notes=(str(stated(decision.code, text, remedy)),))


def _resources(obj: Object, mention: Mention, gpu: str) -> dict[str, dict[str, Json]] | None:
    """Return the container resources that the controller makes from a mention; None if it makes none from this key.

    Names without a domain are the controller's own. Dynamo and Yatai turn `gpu` into the key of `WorkloadKind.gpu`, unless Dynamo's gpuType
    names another, and copy the keys under `custom`.
    """
    parent, _, last = mention.where.removesuffix(_CUSTOM).rpartition("/")
    resources = mapping(resolve_pointer(obj, parent))
    is_gpu = bool(gpu) and mention.key == _GPU and last in _PARTS
    if "/" not in mention.key and not (
        is_gpu and not any(_GPU_TYPE in mapping(resources.get(part)) for part in _PARTS)
    ):
        return None
    if last not in _PARTS:
        quantity = mapping(resolve_pointer(obj, mention.where)).get("quantity")
        return None if quantity is None else {"limits": {mention.key: quantity}}
    requested: dict[str, dict[str, Json]] = {}
    for part in _PARTS:
        amounts = mapping(resources.get(part))
        own = {gpu: amounts[_GPU]} if is_gpu and _GPU in amounts else {}
        amounts = {**own, **amounts, **mapping(amounts.get(_CUSTOM[1:]))}
        requested[part] = {key: amount for key, amount in amounts.items() if "/" in key}
    return requested


def _readable(where: str) -> str:
    """Return a pointer in a readable form: predictor/model."""
    inner = _FIRST.sub("", where, count=1).removesuffix(_CUSTOM)
    for end in (*_PARTS, "resources"):
        inner = inner.removesuffix(f"/{end}")
    return inner
