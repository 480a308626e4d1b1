"""Names of claims and templates in files, as people write them: a claim is named after its request, and a template after the object."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.raw import Object, items, mapping
from webhook.names import ANNOTATIONS, PREFIX
from webhook.translate import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.manifests import Document

_TEMPLATE: Final = "ResourceClaimTemplate"
_LONGEST: Final = 200  # letters of an object's name in the name of a template
_NUMBER: Final = re.compile(r"-\d+$")  # of several requests of one claim


class _Named(NamedTuple):
    """A template that has a name: its content without defaults, its file, and the object for which it was made ("" if a file had it)."""

    spec: Any
    file: str
    owner: str = ""


class TemplateNames:
    """The names of templates in files. A name has one content, and only one object has new templates of this name."""

    def __init__(self, documents: Iterable[Document], *, is_one_build: bool = False) -> None:
        """Read the templates of files. In the files of one build, a template that any of the files has is not added again."""
        self._is_one_build = is_one_build
        self._named = {
            name_of(document.object): _Named(without_defaults(document.object.get("spec")), document.file)
            for document in documents
            if document.object.get("kind") == _TEMPLATE
        }

    def name(self, template: Object, candidate: str, document: Document) -> tuple[Object, bool]:
        """Return a template with a name, if necessary with a number, and whether the file of the document needs it."""
        spec, owner = without_defaults(template["spec"]), name_of(document.object)
        for number in count(1):
            name = candidate if number == 1 else f"{candidate}-{number}"
            named = {**template, "metadata": {**template["metadata"], "name": name}, "spec": spec}
            known = self._named.setdefault(name_of(named), _Named(spec, document.file, owner))
            if known.spec == spec and known.owner in ("", owner):
                exists = not known.owner and (self._is_one_build or known.file == document.file)
                return named, not exists
        raise AssertionError


def with_plain_names(
    before: Object,
    translated: Object,
    templates: Iterable[Object],
    names: TemplateNames,
    document: Document,
    *,
    suffix: str = "",
    short: bool = True,
) -> tuple[Object, list[Object]]:
    """Return a translated object with other names, and the templates that its files do not have; without the record of the translation.

    `before` is the object before its translation, and `document` contains it. `short` claims have no container in their names.
    """
    wanted = _without_record(translated, before)
    made = {template["metadata"]["name"]: template for template in templates}
    claims = _claim_names(wanted, made, short=short)
    owner = str(mapping(before.get("metadata")).get("name") or "")
    owner = owner[:_LONGEST] if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", owner) else ""
    new_names, new = {}, []
    for spec in pod_specs(wanted):
        for entry in items(spec, "resourceClaims"):
            old = str(entry.get("resourceClaimTemplateName"))
            if old in made and old not in new_names:
                own = owner if owner and len(made) == 1 else f"{owner}-{claims[entry['name']]}"
                candidate = "-".join(filter(None, (own, suffix))).strip("-")
                template, is_needed = names.name(made[old], candidate, document)
                new_names[old] = template["metadata"]["name"]
                new += [template] if is_needed else []
    return renamed(wanted, {**claims, **new_names}), new


def _claim_names(wanted: Object, made: Mapping[str, Object], *, short: bool) -> dict[str, str]:
    """Return the names of new claims of a pod: that of the request if `short` and it is unique in each pod, else with that of the container."""
    requests: dict[str, str] = {}
    are_unique = True
    for spec in pod_specs(wanted):
        entries = {
            str(entry.get("name")): str(entry.get("resourceClaimTemplateName"))
            for entry in items(spec, "resourceClaims")
        }
        of_pod = {
            name: _NUMBER.sub("", made[template]["spec"]["spec"]["devices"]["requests"][0]["name"])
            for name, template in entries.items()
            if template in made
        }
        used = [of_pod.get(name, name) for name in entries]
        are_unique = are_unique and len(set(used)) == len(used)
        requests |= of_pod
    return requests if short and are_unique else {name: name.removeprefix(PREFIX) for name in requests}


def pod_specs(value: Any) -> Iterator[Object]:
    """Yield the specs of pods with claims in an object."""
    if isinstance(value, dict):
        if isinstance(value.get("resourceClaims"), list):
            yield value
        for below in value.values():
            yield from pod_specs(below)
    elif isinstance(value, list):
        for below in value:
            yield from pod_specs(below)


def without_defaults(value: Any) -> Any:
    """Return the spec of a claim without the values that the API server fills in."""
    if isinstance(value, list):
        return [without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_default = value.get("allocationMode") in (None, "ExactCount") and "deviceClassName" in value
    return {
        name: without_defaults(member)
        for name, member in value.items()
        if not is_default or (name, member) not in (("allocationMode", "ExactCount"), ("count", 1))
    }


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a copy with new names in place of the texts that are old names."""
    if isinstance(value, dict):
        return {key: renamed(member, names) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _without_record(after: Any, before: Any) -> Any:
    """Return a copy without new annotations that record a translation: files have a history, and a later patch would falsify the record."""
    if isinstance(after, list):
        old_items = [*before, *[None] * len(after)] if isinstance(before, list) else [None] * len(after)
        return [_without_record(item, old) for item, old in zip(after, old_items, strict=False)]
    if not isinstance(after, dict):
        return after
    old = mapping(before)
    members = {}
    for key, member in after.items():
        if key not in ANNOTATIONS:
            members[key] = _without_record(member, old.get(key))
            if not members[key] and key in ("annotations", "metadata") and key not in old:
                del members[key]
        elif key in old:
            members[key] = old[key]
    return members
