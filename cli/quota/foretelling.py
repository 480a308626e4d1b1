"""What quotas would say if manifests were applied, one after the other: to pods, claims, and as many pods as workloads make. Pure.

What stands earlier in the input has come when the next is asked about, as far as it passes. What a cluster has already is nobody who comes: an
object with a uid, claims with devices, and namesakes in the inventory, of which only the replicas that are more ask.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from allocator.quota import FutureClaim, NewObject, QuotaQuestion
from cli.arrivals import brings_pods, makings
from cli.loading import scene_of
from cli.quota.reporting import find_spec, waiting_in
from cluster.patch import apply_json_patch
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplateSpec, claim_spec, versions
from dra.policy import Demands, held_of_quota, in_scope, whose
from dra.stock import total
from dra.validation import CODES, Problem, Reviewed, findings, name
from dra.wire import WireError, convert
from webhook.admission import decide_object, wants_of_pod
from webhook.translate import mapping, namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dra.objects import DeviceQuota, ResourceClaimSpec
    from dra.policy import QuotaLine
    from dra.stock import Amounts
    from webhook.state import State
    from webhook.translate import Translation

    _Object = dict[str, Any]

_TURNED_BACK, _IN_PART = "D216", "D217"


class Foretold(NamedTuple):
    """What quotas say of one pod or claim of the input, or of pods that are alike."""

    number: int  # of the object
    path: str  # of what asks, in the object
    lines: tuple[QuotaLine, ...]

    @property
    def replicas(self) -> int:
        """How many ask."""
        return self.lines[0].replicas

    @property
    def passing(self) -> int:
        """How many of them would pass."""
        return min(line.replicas_left for line in self.lines)

    @property
    def crossed(self) -> list[QuotaLine]:
        return [line for line in self.lines if line.exceeded]


class _Arrival(NamedTuple):
    """Who would come, of which object, how many of them, and of where in it."""

    number: int
    path: str
    new: NewObject
    replicas: int = 1


def foretell(objects: Sequence[_Object], around: Sequence[_Object], state: State) -> list[Foretold]:
    """Ask the quotas among the objects, and around them, about the objects in their order."""
    if not any(one.get("kind") == "DeviceQuota" for one in (*objects, *around)):
        return []
    known = {name(one): one for one in around}
    there = [one for one in objects if not _comes(one)]
    scene = scene_of([*around, *there], state.features)
    demands = Demands()
    waits = waiting_in(scene, demands)
    held: dict[str, Amounts] = {}
    waiting: dict[str, Amounts] = {}
    for quota in scene.quotas:
        key = quota.metadata.key
        held[key] = held_of_quota(quota, scene.stock, scene.find_pod)
        waiting[key] = waits(quota)
    question = QuotaQuestion(
        scene.quotas,
        lambda quota: held[quota.metadata.key],
        lambda quota: waiting[quota.metadata.key],
        partial(demands.of, stock=scene.stock),
        partial(find_spec, scene),
    )
    told: list[Foretold] = []
    for number, path, new, replicas in _arrivals(objects, known, state):
        wanted = question.asked_by(new)
        lines = question.lines_for(new, _times(wanted, replicas))
        if not lines:
            continue
        counted = tuple(replace(line, replicas=replicas) for line in lines)
        foretold = Foretold(number, path, counted)
        told.append(foretold)
        passing = _times(wanted, foretold.passing)
        for quota in _about(new, scene.quotas):
            key = quota.metadata.key
            waiting[key] = total((waiting[key], passing))
    return told


def reviewed(foretold: Iterable[Foretold], objects: Sequence[_Object]) -> Iterator[Reviewed]:
    """Say as findings what would be turned back."""
    for one in foretold:
        code = _IN_PART if one.passing else _TURNED_BACK
        problems = [Problem(code, f"{one.path}/spec", str(line), CODES[code].hint) for line in one.crossed]
        for finding in findings(problems, name(objects[one.number])):
            yield Reviewed(one.number, finding)


def _times(amounts: Amounts, count: int) -> Amounts:
    return {key: amount * count for key, amount in amounts.items()}


def _about(new: NewObject, quotas: Iterable[DeviceQuota]) -> Iterator[DeviceQuota]:
    """List the quotas that are about somebody."""
    for quota in quotas:
        same = (quota.metadata.namespace or "default") == new.namespace
        if same and in_scope(quota, new.priority_class):
            yield quota


def _comes(obj: _Object) -> bool:
    """Whether an object asks for something once it is applied: pods, and claims that have no devices yet."""
    if mapping(obj.get("metadata")).get("uid"):
        return False
    if obj.get("kind") == "ResourceClaim":
        return not mapping(obj.get("status")).get("allocation")
    return brings_pods(obj)


def _arrivals(objects: Sequence[_Object], known: dict[str, _Object], state: State) -> Iterator[_Arrival]:
    for number, obj in enumerate(objects):
        if not _comes(obj):
            continue
        before = known.get(name(obj))
        try:
            if obj.get("kind") == "ResourceClaim":
                if before is None:
                    yield _Arrival(number, "", _claim(number, obj))
            else:
                yield from _pods(number, obj, before, state)
        except WireError:
            continue  # it has findings of its own


def _claim(number: int, obj: _Object) -> NewObject:
    claim = convert(versions.upgrade(obj).value, ResourceClaim)
    return NewObject(f"{number}", namespace_of(obj), claims={"": FutureClaim(spec=claim_spec(claim.spec))})


def _pods(number: int, obj: _Object, before: _Object | None, state: State) -> Iterator[_Arrival]:
    """List the pods that an object makes, as the webhook would let them in."""
    made = {one.path: one.replicas for one in makings(before)} if before else {}
    for one in makings(obj):
        replicas = one.replicas - made.get(one.path, 0)
        if replicas <= 0:
            continue
        done = decide_object(one.pod, state)
        if done.refusals:
            continue
        pod = convert(apply_json_patch(one.pod, done.operations), Pod)
        wants = _wants(pod, done)
        if wants:
            namespace, priority_class = whose(pod)
            new = NewObject(f"{number}{one.path}", namespace, "", priority_class, wants)
            yield _Arrival(number, one.path, new, replicas)


def _wants(pod: Pod, done: Translation) -> dict[str, FutureClaim]:
    """Say which claims will be made for a pod, those of the translation's templates included."""
    wants: dict[str, FutureClaim] = {}
    for entry, wanted in wants_of_pod(pod).items():
        written = done.templates.get(wanted.template)
        spec = _spec(written) if written else wanted.spec
        wants[entry] = FutureClaim(wanted.template, spec)
    return wants


def _spec(written: Any) -> ResourceClaimSpec:
    return claim_spec(convert(written, ResourceClaimTemplateSpec).spec)
