"""Words of an object that stand in no pod template: in kinds whose controller makes its pods itself, and in kinds that nobody knows.

    spec.predictor.model.resources   KServe makes a container of it: what becomes of its words is decided as on a pod
    spec.driver.gpu.name             Spark's own field, from which its pods get the key
    rayStartParams.num-gpus          a word to Ray, and no request
    podSpecPatch, values, manifest   a text in which a key has an amount: named, and not looked into
    spec.anything of a strange kind  named, and not looked into

Nothing here changes an object: pods are translated when they come to the gate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dra.objects import template_site
from dra.pointer import escape
from webhook.admission.remainder import BEYOND, MOST, judge_resource
from webhook.dialects import Action
from webhook.refusals import sentence
from webhook.translate import (
    Decision,
    Translation,
    at,
    bodies,
    group_kind,
    kind_of,
    mapping,
    merge,
    name_of,
    namespace_of,
    paths,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dra.wire import Json
    from webhook.state import State
    from webhook.translate import WorkloadKind

    _Object = dict[str, Json]
    _Member = tuple[str, Json]

# Values that are looked at in one object: what a server stores has fewer that mean something.
VALUES = 100_000
_UNSEEN = f"not looked at, nor is what comes after it: the object has more than {VALUES:,} values before it"
_FIRST = re.compile(r"/(?:spec/)?")
_SIDES = ("limits", "requests")
_KUEUE = "it counts the key: map the DeviceClass to a resource in Kueue's configuration"
_NO_CLAIMS = "it counts the key, and no claims"
# Kinds that bound or count keys, and ask for nothing.
_COUNTING = {
    ("", "ResourceQuota"): "it limits the key, which claims would escape: write a DeviceQuota, or a quota of the class",
    ("", "LimitRange"): "it bounds or fills in the key: pods of its namespace keep it",
    ("kueue.x-k8s.io", "ClusterQueue"): _KUEUE,
    ("kueue.x-k8s.io", "Cohort"): _KUEUE,
    ("scheduling.volcano.sh", "Queue"): _NO_CLAIMS,
    ("scheduling.volcano.sh", "PodGroup"): _NO_CLAIMS,
    ("scheduling.sigs.k8s.io", "ElasticQuota"): _NO_CLAIMS,
    ("nos.nebuly.com", "ElasticQuota"): _NO_CLAIMS,
    ("nos.nebuly.com", "CompositeElasticQuota"): _NO_CLAIMS,
    ("nfd.k8s-sigs.io", "NodeFeatureRule"): "it describes nodes, and asks for nothing",
    ("karpenter.sh", "NodePool"): "it bounds the nodes that are made, and asks for nothing",
}
# Groups of Kubernetes and of ours, whose kinds ask for no devices but where this page or a pod template says so.
_OWN = re.compile(r"[a-z]*|.*\.k8s\.io|drawbridge\.dev")
# Fields in which a number of devices stands under no resource's name.
_FIELD = re.compile(
    r"(?:num|n|request|limit|entrypointnum)?[-_]?(?:gpu|npu|tpu|accelerator)s?[-_]?(?:count|num|number|limit|request)?",
    re.IGNORECASE,
)
_REMEDY = "pods that it makes are decided on at the gate: put one of them to `drawbridge translate`"
# Maps of what nodes and objects are called, which is no request.
_LABELS = re.compile(r"(?:label|selector|annotation|affinity)[^/]*(?:/|$)", re.IGNORECASE)
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_LONGEST = 63  # letters of a container's name
_NAMES = ("name", "resourceName", "deviceName", "processingResourceType")
# A key and its amount within a text, as YAML or JSON or a template of such has it. Nothing in it is tried twice, however long the text is.
_IN_TEXT = re.compile(r"""(?<![\w.-])([\w.-]{1,253}/[\w.-]{1,63})["']?[ \t]*:[ \t]*["']?(?=[1-9{$])""")


class Mention(NamedTuple):
    """A word that stands in no pod template: its key, and the pointer to the map in which it stands.

    `beyond` says why it is the first thing that is not looked at; `text` names the member of the map in whose text it stands.
    """

    where: str
    key: str
    beyond: str = ""
    text: str = ""


class Elsewhere(NamedTuple):
    """What becomes of the words outside of pod templates, and pods with the requests that a controller makes containers of."""

    said: Translation
    pods: dict[str, _Object]  # by where the requests stand, as people say it


def look_elsewhere(obj: _Object, state: State, *, unknown: bool = False) -> Elsewhere:
    """Look outside of an object's pod templates; those of kinds we do not know are looked into only if `unknown`."""
    words = list(find_elsewhere(obj, state, paths(obj, unknown=unknown)))
    name = name_of(obj)
    both = group_kind(obj)
    counted = _COUNTING.get(both)
    known = kind_of(obj)
    said: list[Translation] = []
    pods: dict[str, _Object] = {}
    for one in words:
        if one.beyond:
            said.append(_not_looked_at(name, one))
            continue
        if counted:
            said.append(_left(name, one, counted))
            continue
        if one.text:
            said.append(_not_looked_into(name, one, f"it stands in {one.text}, a text"))
            continue
        if known is None:
            kind = both[1] or "object without a kind"
            said.append(_not_looked_into(name, one, f"nobody knows here what a {kind} makes of it"))
            continue
        place = _place(one.where)
        resources = _resources(obj, one)
        if resources is None:
            said.append(
                _left(name, one, f"it stays, and is no request by itself: it is read by {_reader(known, both[1])}")
            )
        elif place not in pods:
            pods[place] = _pod(obj, place, resources)
            stays = f"{place} stays: it is read by {_reader(known, both[1])}; the pods are translated at the gate"
            said.append(Translation(warnings=(stays,)))
    return Elsewhere(merge(said), pods)


def asks_elsewhere(obj: _Object, state: State) -> bool:
    """Say whether an object asks for devices, and not in a pod template."""
    return group_kind(obj) not in _COUNTING and any(find_elsewhere(obj, state))


def find_elsewhere(obj: _Object, state: State, inside: Collection[str] = ()) -> Iterator[Mention]:
    """Find the words of an object that are not below the pointers `inside`, in the order in which they stand."""
    if _is_silent(obj):
        return
    waiting: list[_Member] = [("", {name: obj[name] for name in bodies(obj)})]
    seen = found = 0
    while waiting:
        where, value = waiting.pop()
        if where in inside:
            continue
        if seen >= VALUES:
            yield Mention(where, "", _UNSEEN)
            return
        members = _members(value)
        seen += 1 + len(members)
        for member in members:
            one = _mention(where, member, state, is_named=isinstance(value, dict))
            if one and found == MOST:
                yield one._replace(beyond=BEYOND)
                return
            if one:
                found += 1
                yield one
        below = [(f"{where}/{escape(name)}", member) for name, member in members if isinstance(member, dict | list)]
        waiting += reversed(below)


def _mention(where: str, member: _Member, state: State, *, is_named: bool) -> Mention | None:
    """Say which word a member of a map or a list is, or has in its text; None if there is none."""
    name, value = member
    key = _key(where, name, value, state) if is_named else ""
    if key:
        return Mention(where, key)
    if not isinstance(value, str) or "/" not in value or _LABELS.search(where):
        return None
    for found in _IN_TEXT.finditer(value):
        key = found[1]
        if state.configuration.resource(key) or key in state.fleet.extended:
            return Mention(where, key, text=name if is_named else f"item {name}")
    return None


def _is_silent(obj: _Object) -> bool:
    """Whether an object of this kind has nothing to say but in its pod template."""
    if template_site(obj) is not None:
        return True
    both = group_kind(obj)
    return bool(_OWN.fullmatch(both[0])) and both not in _COUNTING and kind_of(obj) is None


def _members(value: Json) -> list[_Member]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return [(str(index), member) for index, member in enumerate(value)]
    return []


def _key(where: str, name: str, value: Json, state: State) -> str:
    """Say which word a member of a map is, if it is one."""
    if isinstance(value, dict | list):
        return ""
    bare = name.removeprefix("requests.").removeprefix("limits.")
    if "/" in bare:
        return "" if _LABELS.search(where) else _resource(bare, state)
    is_name = name in _NAMES and isinstance(value, str)
    if is_name and "/" in str(value):
        return _resource(str(value), state)
    if where.rpartition("/")[2] in _SIDES:
        return _resource(name, state)
    is_field = _FIELD.fullmatch(name) is not None
    return name if is_field and _counts(value) else ""


def _resource(name: str, state: State) -> str:
    """Give a name back that is one of devices."""
    return name if state.configuration.resource(name) or judge_resource(name, state) else ""


def _counts(value: Json) -> bool:
    """Whether a value is a number of something, and not of nothing."""
    if isinstance(value, str):
        return value.isdecimal() and bool(value.strip("0"))
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _left(name: str, one: Mention, reason: str) -> Translation:
    decision = Decision(name, _place(one.where), "", one.key, Action.LEFT, reason)
    return Translation(decisions=(decision,))


def _not_looked_into(name: str, one: Mention, why: str) -> Translation:
    reason = f"not looked into: {why}"
    place = _place(one.where)
    decision = Decision(name, place, "", one.key, Action.NOT_UNDERSTOOD, reason, code="D211", remedy=_REMEDY)
    warning = sentence("D211", f"{place}: {one.key}: {reason}", _REMEDY)
    return Translation(decisions=(decision,), warnings=(warning,))


def _not_looked_at(name: str, one: Mention) -> Translation:
    place = _place(one.where)
    decision = Decision(name, place, "", one.key, Action.NOT_UNDERSTOOD, one.beyond, code="D215")
    what = ": ".join(filter(None, (place, one.key, one.beyond)))
    return Translation(decisions=(decision,), warnings=(sentence("D215", what),))


def _reader(known: WorkloadKind, kind: str) -> str:
    return known.reads or f"whoever makes pods of a {kind}"


def _resources(obj: _Object, one: Mention) -> Json:
    """The requests of which a controller makes those of a container; None where a word is not among such.

    A name without a domain is the controller's own: Dynamo makes nvidia.com/gpu of `gpu`.
    """
    if "/" not in one.key:
        return None
    parent, _, last = one.where.rpartition("/")
    if last not in _SIDES:
        quantity = mapping(at(obj, one.where)).get("quantity")
        return None if quantity is None else {"limits": {one.key: quantity}}
    resources = mapping(at(obj, parent))
    asked: _Object = {}
    for side in _SIDES:
        amounts = mapping(resources.get(side))
        asked[side] = {key: amount for key, amount in amounts.items() if "/" in key}
    return asked


def _pod(obj: _Object, place: str, resources: Json) -> _Object:
    """Make the pod that a controller would make, as far as it can be known."""
    name = _NO_LABEL.sub("-", place.lower()).strip("-")[-_LONGEST:].strip("-") or "main"
    container: _Object = {"name": name, "image": name, "resources": resources}
    metadata: _Object = {"name": name, "namespace": namespace_of(obj)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _place(where: str) -> str:
    """Where something stands, as people say it: predictor/model."""
    inner = _FIRST.sub("", where, count=1)
    for end in (*_SIDES, "resources"):
        inner = inner.removesuffix(f"/{end}")
    return inner
