"""Workloads: the pod templates of an object, and a whole object translated with what it then needs beside it.

Only for files. In a cluster the webhook sees pods, and warns about workloads; rewriting them there would fight with
whoever owns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import template_site
from dra.pointer import escape, split
from webhook.translate.pod_view import mapping
from webhook.translate.translate import NOTHING, Translation, translate
from webhook.translate.workload_kind import kind_of, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.refusals import Denial
    from webhook.state import State
    from webhook.translate.report import Decision
    from webhook.translate.workload_kind import Provenance

# The members of an object that say what it is, and how it is.
_ABOUT = frozenset(("apiVersion", "kind", "metadata", "status"))
# What stands between a workload and its pods, and is what they name as their controller.
_BETWEEN: Mapping[str, str] = {"Deployment": "ReplicaSet", "CronJob": "Job"}


def controller_kind(kind: str) -> str:
    """The kind that the pods of a workload of some kind name as their controller."""
    return _BETWEEN.get(kind, kind)


def name_of(obj: Mapping[str, Json]) -> str:
    """Name an object as reports do: Kind/namespace/name."""
    metadata = mapping(obj.get("metadata"))
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return f"{obj.get('kind', '')}/{metadata.get('namespace') or 'default'}/{name}"


def paths(obj: Mapping[str, Json], *, unknown: bool = False) -> list[str]:
    """Find the pod templates of an object; in kinds that nobody knows only if `unknown`."""
    site = template_site(obj)
    if site is not None:
        return [site.path] if _is_pod(at(obj, site.path)) else []
    if not unknown and kind_of(obj) is None:
        return []
    return [found for name in bodies(obj) for found in _search(obj[name], f"/{escape(name)}")]


def bodies(obj: Mapping[str, Json]) -> list[str]:
    """Name the members of an object that say what it wants: mostly its spec; KAITO's have others beside it, or none."""
    return [name for name in obj if name not in _ABOUT]


def at(obj: Json, path: str) -> Json:
    """Follow a JSON pointer through maps and lists; None where it leads nowhere."""
    for part in split(path):
        if isinstance(obj, list):
            obj = obj[int(part)] if part.isdecimal() and int(part) < len(obj) else None
        else:
            obj = mapping(obj).get(part)
    return obj


def _is_pod(value: Json) -> bool:
    return isinstance(mapping(mapping(value).get("spec")).get("containers"), list)


def _search(value: Json, path: str) -> list[str]:
    """Anything with `spec.containers` is taken for a pod template (RayCluster, Volcano Job, JobSet, ...)."""
    found: list[str] = []
    waiting = [(path, value)]
    while waiting:
        where, one = waiting.pop()
        if _is_pod(one):
            found.append(where)
            continue
        below: list[tuple[str, Json]] = []
        if isinstance(one, list):
            below = [(f"{where}/{index}", item) for index, item in enumerate(one)]
        elif isinstance(one, dict):
            below = [(f"{where}/{escape(name)}", member) for name, member in one.items()]
        waiting += reversed(below)
    return found


def namespace_of(obj: Mapping[str, Json]) -> str:
    """The namespace that an object is in, or would be put into."""
    metadata = mapping(obj.get("metadata"))
    return str(metadata.get("namespace") or "default")


def _keep_template(one: Translation, origin: Provenance) -> Translation:
    """Leave a template that somebody reads; what was decided about it is what becomes of its pods at the webhook."""
    told = f"the template stays: the keys in it are read by {origin.reads}; its pods are translated at the webhook"
    return msgspec.structs.replace(one, operations=(), templates={}, warnings=(told, *one.warnings))


def translate_object(obj: dict[str, Json], state: State, *, unknown: bool = False) -> Translation:
    """Translate a pod, or every pod template of a workload; refused as a whole if one of them is."""
    return merge(translate_each(obj, state, unknown=unknown).values())


def translate_each(
    obj: dict[str, Json], state: State, *, unknown: bool = False, budget: Budget | None = None
) -> dict[str, Translation]:
    """Translate every pod template of an object, by the pointer to it."""
    name = name_of(obj)
    namespace = namespace_of(obj)
    origin = origin_of(obj, state.configuration)
    done: dict[str, Translation] = {}
    for path in paths(obj, unknown=unknown):
        pod = at(obj, path)
        one = translate(
            pod,
            state,
            namespace=namespace,
            path=path,
            budget=budget,
            origin=origin,
        )
        if origin.reads and one.changed:
            one = _keep_template(one, origin)
        done[path] = _name(one, name)
    return done


def _name(one: Translation, name: str) -> Translation:
    """Have the decisions speak of the object that the template stands in."""
    decisions: list[Decision] = []
    for decision in one.decisions:
        about = msgspec.structs.replace(decision, object=name)
        decisions.append(about)
    return msgspec.structs.replace(one, decisions=tuple(decisions))


def merge(several: Iterable[Translation]) -> Translation:
    """Put the translations of an object's templates together."""
    done = tuple(several)
    if len(done) < 2:
        return done[0] if done else NOTHING
    decided: list[Decision] = []
    operations: list[dict[str, Json]] = []
    templates: dict[str, Json] = {}
    refusals: list[Denial] = []
    warnings: dict[str, None] = {}  # a set that keeps their order
    for one in done:
        decided += one.decisions
        operations += one.operations
        templates |= one.templates
        refusals += one.refusals
        warnings |= dict.fromkeys(one.warnings)
    if refusals:
        operations, templates = [], {}
    return Translation(
        decisions=tuple(decided),
        operations=tuple(operations),
        templates=templates,
        refusals=tuple(refusals),
        warnings=tuple(warnings),
    )
