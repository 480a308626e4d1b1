"""Finds the object that the arguments of `drawbridge explain` name, and builds its story."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from analysis.arrivals import created_pods
from analysis.errors import Broken, MissingObject
from analysis.explain.devices import device_story
from analysis.explain.lone_claims import lone_claim_story
from analysis.explain.pod_story import pod_story
from analysis.explain.workload_story import KIND_OF, workload_story
from analysis.loading import identity_of
from analysis.naming import find, find_device
from dra.validation import shape

if TYPE_CHECKING:
    from analysis.explain.stories import Story
    from analysis.loading import Reading

_KINDS = {
    "pod": ("pod", "pods", "po"),
    "claim": ("claim", "claims", "resourceclaim", "resourceclaims"),
    "device": ("device", "devices"),
}
_KIND_OF = {alias: kind for kind, aliases in _KINDS.items() for alias in aliases}
CODE = re.compile(r"[A-Za-z]\d+|all")
WORDS = (*_KINDS, *KIND_OF)  # names of kinds on the command line


class Subject(NamedTuple):
    """The object to explain (pod, claim, device or workload), the argument for its kind, and its name."""

    kind: str
    kind_name: str
    name: str


def subject_of(arguments: tuple[str, ...]) -> Subject | None:
    """Return the object that the arguments name; None for codes. Raises Broken."""
    kind_name, slash, rest = arguments[0].partition("/")
    if "." in kind_name and "/" in rest and kind_name.partition(".")[0] not in WORDS:  # a device, as `free` prints it
        return Subject("device", "device", arguments[0])
    if slash:  # pod/NAME, as in kubectl
        arguments = (kind_name.partition(".")[0].lower(), rest, *arguments[1:])
    kind_name, *names = arguments
    if kind_name in ("no", "node", "nodes") and names:
        raise Broken("explain has no kind node", f"use `drawbridge free {names[0]}`")
    kind = _KIND_OF.get(kind_name) or ("workload" if slash or kind_name in KIND_OF else "")
    if not kind and (len(names) != 1 or CODE.fullmatch(kind_name)):
        return None
    if not kind:
        if similar := shape.nearest_name(kind_name, [*_KIND_OF, *KIND_OF]):
            raise Broken(
                f"explain has no kind {kind_name!r}", f"did you mean `drawbridge explain {similar} {names[0]}`?"
            )
        kind = "workload"  # of a kind that another project defines
    if len(names) != 1:
        raise Broken(f"`explain {kind_name}` takes one name", f"use `drawbridge explain {kind_name} NAME`")
    return Subject(kind, kind_name, names[0])


def story_of(subject: Subject, namespace: str, reading: Reading) -> Story:
    """Explain an object. Raises MissingObject."""
    match subject.kind:
        case "pod":
            try:
                pod = find("pod", subject.name, namespace, reading.raw | reading.pods)
            except MissingObject as error:
                if workload := _creator_of(subject.name, reading):
                    raise MissingObject(
                        error.message, f"the input has what creates it: use `drawbridge explain {workload}`"
                    ) from None
                raise
            return pod_story(pod, reading)
        case "claim":
            claim = find("claim", subject.name, namespace, reading.stock.claims)
            return lone_claim_story(claim, reading)
        case "workload":
            try:
                return workload_story(subject.kind_name, subject.name, namespace, reading)
            except MissingObject:
                pod = f"{subject.kind_name}/{subject.name}"  # NAMESPACE/NAME, as `free` prints pods
                if pod not in reading.pods:
                    raise
                return pod_story(pod, reading)
        case _:
            return device_story(find_device(subject.name, reading.stock), reading)


def _creator_of(pod_name: str, reading: Reading) -> str:
    """Return the workload (kind/name) whose name is a prefix of a pod's name; "" if there is none."""
    for obj in reading.objects:
        identity = identity_of(obj)
        if pod_name.startswith(f"{identity.name}-") and any(created_pods(obj)):
            return f"{identity.kind.lower()}/{identity.name}"
    return ""
