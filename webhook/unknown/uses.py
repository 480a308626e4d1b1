"""Finds what an object asks for, and where: each key with its amount, its owner, its role and the pointer to it.

a member of a pod template    which decisions about pods name by container and key (`located`)
a key outside of templates    in values, fields and texts (`uses_outside`)
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dra.objects import template_site
from dra.pointer import member
from dra.raw import Object, inside, mapping, members, strings, text
from webhook.dialects import Position, Role
from webhook.reading import Place, PlaceRole, is_object, place_in, place_of, repeated_members
from webhook.translate import (
    OWN_GROUP,
    READ_BY_OTHERS,
    Decision,
    bodies,
    group_kind,
    kind_of,
    paths,
    resolve_pointer,
    view_pod,
)
from webhook.unknown import words
from webhook.unknown.unanswered_requests import BEYOND, MAX_KEYS, judge_resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from dra.wire import Json
    from webhook.state import State

    # The pointer to a map or a list, the name or the number of its member, the value, and what is special of the innermost object.
    _Special = tuple[str, str, str]
    _Member = tuple[str, str | int | None, Json, _Special]

# Values of one object that are read.
VALUES = 100_000
_UNSEEN = f"not checked: the object has more than {VALUES:,} values before it"
ANNOTATIONS = "/metadata/annotations"
CUSTOM = "/custom"  # in Yatai's and Dynamo's kinds, below limits and requests: resources without a field of their own
# Kinds with arbitrary texts.
OF_TEXTS = (("", "ConfigMap"), ("", "Secret"))


class How(StrEnum):
    """How a key outside of pod templates asks for devices."""

    AMOUNT = "amount"  # among limits and requests
    FIELD = "field"  # a number, the name of a resource, or a parameter
    ACCESS = "access"  # a variable, a runtime class or a device file, without a request
    TEXT = "text"  # in a text that contains a part of an object
    UNREAD = "unread"  # this key and all further keys are not checked


class Use(NamedTuple):
    """A key outside of pod templates."""

    pointer: str  # to the key, or to the text that has it
    where: str  # the pointer to its map
    key: str
    how: How
    place: Place  # its role, and why a key that does not request stays
    amount: str = ""
    detail: str = ""  # the member whose text has the key; why it is not checked

    @property
    def owner(self) -> str:
        """The pointer to the container, the pod or the chart that gets the devices, with a slash at its end."""
        return words.PART_OF_OWNER.sub("/", self.where + "/")

    def is_beside_request(self, uses: Iterable[Use]) -> bool:
        """Return whether this is a variable, runtime class or device file of a container, pod or chart with device requests."""
        return self.how is How.ACCESS and any(
            other.how is How.AMOUNT and other.owner.startswith(self.owner) for other in uses
        )


def requests_outside(obj: Object, state: State) -> bool:
    """Return whether an object may request devices outside of its pod templates."""
    uses = uses_outside(obj, state) if place_of(obj).role.may_request else ()
    return any(use.place.role.may_request for use in uses)


def counts_keys(obj: Object, state: State) -> bool:
    """Return whether an object only limits, describes, offers or supplies devices: nothing in it requests."""
    if not place_of(obj).role.may_request:
        return True
    roles = [] if paths(obj) else [use.place.role for use in uses_outside(obj, state)]
    return bool(roles) and not any(role.may_request for role in roles)


def accesses(obj: Object, state: State) -> Iterator[tuple[str, str]]:
    """Yield the pointers to variables and device files by which an object's containers reach devices, with their names, beside requests, too."""
    templates = paths(obj)
    for template in templates:
        for _, key, pointer, amount in _in_pod(mapping(resolve_pointer(obj, template)), template):
            if (amount and key in words.VARIABLES) or words.DEVICE_FILE(key):
                yield pointer, key
    for use in uses_outside(obj, state, templates):
        if use.how is How.ACCESS and use.key != words.RUNTIME:
            yield use.pointer, use.key


def uses_outside(obj: Object, state: State, templates: Collection[str] = ()) -> Iterator[Use]:
    """Yield the keys of an object outside of its pod templates (at these pointers), and in texts of the templates' containers.

    Keys in commands and arguments of containers come first, then annotations, then the rest in the order of the object.
    """
    full_kind, role, known = group_kind(obj), place_of(obj).role, kind_of(obj)
    if role is PlaceRole.SUPPLIES:
        return
    in_texts = (
        (where, name, _key_in(filter(words.OF_POD, texts), state)) for where, name, texts in _texts(obj, templates)
    )
    for where, field, key in islice((found for found in in_texts if found[2]), MAX_KEYS):
        yield Use(member(where, field), where, key, How.TEXT, place_in(obj, where), detail=field)
    if full_kind in OF_TEXTS:
        return
    if known or (templates and "" not in templates):
        for key in islice(_annotations(obj, state, templates), MAX_KEYS):
            yield Use(member(ANNOTATIONS, key), ANNOTATIONS, key, How.FIELD, place_in(obj, ANNOTATIONS))
    is_own_kind = OWN_GROUP.fullmatch(full_kind[0]) and role is PlaceRole.UNKNOWN and known is None
    if is_own_kind or template_site(obj) is not None:
        return  # such kinds have device requests only in pod templates
    use_count = 0
    for found in _members(obj, templates):
        if found[1] is None:
            yield Use(found[0], found[0], "", How.UNREAD, place_in(obj, found[0]), detail=_UNSEEN)
            return
        use = _use(obj, found, state)
        if use and use_count == MAX_KEYS:
            yield use._replace(how=How.UNREAD, detail=BEYOND)
            return
        if use:
            use_count += 1
            yield use


def _special(obj: Object, where: str, templates: Collection[str]) -> _Special:
    """Return what is special of the kind of an object: the field with the name of a profile, and the pointer to that of a pool, with its domain."""
    kind, (pool, domain) = kind_of(obj), place_of(obj).pool or ("", "")
    has_template = any(template.startswith(where) for template in templates)
    return kind.profile if kind and not has_template else "", where + pool if pool else "", domain


def _members(obj: Object, templates: Collection[str]) -> Iterator[_Member]:
    """Yield the members of maps and lists; without a name where too many values are before them."""
    special = _special(obj, "", templates)
    parts = [*bodies(obj), *(["metadata"] if special[1].startswith("/metadata/") else ())]
    unvisited: list[tuple[str, Json, _Special]] = [("", {name: obj[name] for name in parts}, special)]
    repeated = repeated_members(obj)
    value_count = 0
    while unvisited:
        where, value, special = unvisited.pop()
        if where in templates:
            continue
        if value_count >= VALUES:
            yield where, None, None, special
            return
        below: list[tuple[str | int, Json]] = []
        if isinstance(value, dict):
            special = _special(value, where, templates) if is_object(value) else special
            below = [named for named in value.items() if named[0] not in repeated]
        elif isinstance(value, list):
            below = list(enumerate(value))
        value_count += 1 + len(below)
        for name, part in below:
            yield where, name, part, special
        unvisited += [
            (member(where, str(name)), part, special) for name, part in reversed(below) if isinstance(part, dict | list)
        ]


def _use(obj: Object, found: _Member, state: State) -> Use | None:
    """Return the use of a member: its name, its value, or a part of its text is a key."""
    where, name, value, (profile, pool, domain) = found
    amount = ""
    # KubeAI's profile `cpu` has no devices.
    is_profile = name == profile != "" and str(value).partition(":")[0] not in ("", "cpu")
    if isinstance(value, dict) and (key := _parameter(where, value)):
        where, amount = member(where, str(name)), str(value.get("value"))
        return Use(
            where, where, key, How.ACCESS if words.gives_devices(key) else How.FIELD, place_in(obj, where), amount
        )
    if pool and isinstance(value, str) and member(where, str(name)) == pool:
        key = _pool_key(domain, value, state)
    elif key := profile if is_profile else _key_of_member(where, name, value, state):
        is_amount = "/" in key or words.gives_devices(key) or words.is_positive(value)
        amount = str(value) if is_amount and str(name).endswith(key) and not isinstance(value, dict | list) else ""
    elif isinstance(value, str) and "/" in value and not words.LABELS(where) and (key := _key_in([value], state)):
        detail = name if isinstance(name, str) else f"item {name}"
        return Use(member(where, str(name)), where, key, How.TEXT, place_in(obj, where), detail=detail)
    else:
        return None
    pointer = member(where, str(name))
    how = How.AMOUNT if where.removesuffix(CUSTOM).rpartition("/")[2] in words.PARTS else How.FIELD
    if how is How.AMOUNT and words.is_zero(value):
        return None
    return Use(pointer, where, key, How.ACCESS if words.gives_devices(key) else how, place_in(obj, where), amount)


def _parameter(where: str, value: Object) -> str:
    """Return the name of a variable that adds devices, or of a parameter with a number of devices."""
    name, amount = value.get("name"), value.get("value")
    if words.adds_devices(name, amount):
        return str(name)
    is_parameter = where.rpartition("/")[2] in ("parameters", "params") and isinstance(name, str)
    return str(name) if is_parameter and words.FIELD(str(name)) and words.is_positive(amount) else ""


def _key_of_member(where: str, name: str | int | None, value: Json, state: State) -> str:
    """Return the key that the name or the value of a member is; "" if it is none."""
    is_labelled = bool(words.LABELS(where))
    if isinstance(value, str) and words.DEVICE_FILE(value):
        return "" if is_labelled else value
    if isinstance(name, str) and words.OBJECT(name) and isinstance(value, dict | list):
        return name if _describes_devices(value) else ""
    if words.adds_devices(name, value) or (name == words.RUNTIME and value in words.RUNTIMES):
        return str(name)
    is_amount = where.rpartition("/")[2] in words.PARTS
    if isinstance(name, str) and not is_amount and words.is_positive(value) and words.FIELD(name):
        return name
    return next((key for key in _names_at(where, name, value, is_labelled=is_labelled) if _resource(key, state)), "")


def _names_at(where: str, name: str | int | None, value: Json, *, is_labelled: bool) -> Iterator[str]:
    """Yield the name of a resource that the name or the value of a member may be."""
    parent = where.rpartition("/")[2]
    if not isinstance(name, str):
        if isinstance(value, str) and "/" in value and parent == "managedResources" and not is_labelled:
            yield value
    elif isinstance(value, dict | list):
        if "/" in name and isinstance(value, dict) and any(map(words.is_positive, value.values())) and not is_labelled:
            yield name
    elif name == "path" and isinstance(value, str) and "~1" in value:  # of a JSON patch
        yield value.rpartition("/")[2].replace("~1", "/")
    elif "/" in name:
        if value is not None and not is_labelled:
            yield name.removeprefix("requests.").removeprefix("limits.")
    elif name in words.NAMES and isinstance(value, str) and words.QUALIFIED(value):
        yield value
    elif parent in words.PARTS and value is not None:
        yield name


def _describes_devices(value: Json) -> bool:
    """Return whether one or more objects describe a number of devices, but do not name their resource."""
    described = [mapping(entry) for entry in (value[:MAX_KEYS] if isinstance(value, list) else [value])]
    if any("/" in str(entry.get(field)) for entry in described for field in words.NAMES):
        return False
    return any(
        any(words.is_positive(entry.get(field)) for field in words.NUMBERS)
        or (entry.get("enabled") is True and "vendor" in entry)
        for entry in described
    )


def _key_in(texts: Iterable[str], state: State) -> str:
    """Return the first key with an amount in these texts, or the first name of a resource; "" if there is none."""
    keys = chain.from_iterable(
        chain((key for key, _ in words.amounts_in(part)), words.NAMED_IN_TEXT(part) if "resourceType" in part else ())
        for part in texts
    )
    return next((key for key in keys if state.configuration.resource(key) or key in state.fleet.extended), "")


def _texts(obj: Object, templates: Collection[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the texts that contain a part of a pod: of a ConfigMap or Secret, and commands of containers, which may apply a manifest."""
    of_kind = ("data", "stringData") if group_kind(obj) in OF_TEXTS else ()
    for field in of_kind:
        for name, value in mapping(obj.get(field)).items():
            yield f"/{field}", name, [text(value)]
    for template in sorted(templates):
        spec = inside(resolve_pointer(obj, template), "spec")
        for part in ("initContainers", "containers"):
            for number, container in enumerate(members(spec.get(part))):
                for name in ("command", "args"):
                    yield f"{template}/spec/{part}/{number}", name, strings(mapping(container), name)


def _pool_key(domain: str, pool: str, state: State) -> str:
    """Return the key of a pool; the pool's name alone if neither the operator nor a node shows the domain."""
    if "/" in pool:
        return pool
    if domain := domain or state.fleet.installed.network.prefix:
        return f"{domain}/{pool}"
    offered = [key for key in state.fleet.handed_out_anywhere if key.endswith(f"/{pool}")]
    return offered[0] if len(offered) == 1 else pool


def _annotations(obj: Object, state: State, templates: Collection[str]) -> Iterator[str]:
    """Yield the annotations of a workload that look like device requests, or whose value names a resource of devices."""
    asks = any(view_pod(resolve_pointer(obj, path), state.configuration).asks_for_devices for path in templates)
    for name, value in inside(obj, "metadata", "annotations").items():
        known = state.configuration.word(Position.ANNOTATION, name)
        is_request = any(of_dialect.row.role is Role.REQUESTS_DEVICES for of_dialect in known)
        is_other = "/" not in name or words.is_own(name) or (asks and name in READ_BY_OTHERS)
        is_request |= not is_other and words.is_about_devices(name.partition("/")[2])
        if is_request or (not is_other and any(map(state.configuration.resource, words.QUOTED(text(value))))):
            yield name


def _resource(name: str, state: State) -> str:
    return name if state.configuration.resource(name) or judge_resource(name, state) else ""


def located(obj: Object, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Add amounts and pointers to the decisions about the pod templates of an object."""
    places: dict[tuple[str, str, str], list[str]] = {}
    templates = [] if all(decision.pointer for decision in decisions) else paths(obj)
    for template in templates:
        names = ("", template) if len(templates) > 1 else ("",)
        for container, key, *place in _in_pod(mapping(resolve_pointer(obj, template)), template):
            for name in names:
                places.setdefault((name, container, key), place)
                places.setdefault((name, "", key), place)
    found: list[Decision] = []
    for decision in decisions:
        template, container, key = decision.place
        nearest = [
            places[place]
            for place in ((template, container, key), (template, container, ""), (template, "", ""))
            if place in places
        ]
        pointer, amount = nearest[0] if nearest else ["/spec", ""]
        if key.startswith("/") and not key.startswith("/dev/"):  # a fault that the API server finds outside of requests
            pointer = key
        found.append(decision if decision.pointer else replace(decision, pointer=pointer, amount=amount))
    return tuple(found)


def _in_pod(pod: Object, path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield what decisions about a pod are about: the container or "", the key, its pointer, and the amount that a key requests by itself.

    Without a key, the pointer is that of the container or the spec. Of two with the same key, the first has the amount.
    """
    spec, at = inside(pod, "spec"), f"{path}/spec"
    for parent in ("metadata/annotations", "metadata/labels", "spec/nodeSelector", "spec/affinity", "spec"):
        yield from (("", key, member(f"{path}/{parent}", key), "") for key in inside(pod, *parent.split("/")))
    parts = [("", at, spec)]
    for field in ("containers", "initContainers"):
        containers = enumerate(map(mapping, members(spec.get(field))))
        parts += [(str(raw.get("name", "")), f"{at}/{field}/{number}", raw) for number, raw in containers]
    for container, where, raw in parts:
        yield container, "", where, ""
        yield container, words.RUNTIME, f"{at}/{words.RUNTIME}", text(spec.get(words.RUNTIME))
        for part in words.PARTS:
            for key, amount in inside(raw, "resources", part).items():  # the API server stores null as 0
                yield container, key, member(f"{where}/resources/{part}", key), "0" if amount is None else str(amount)
        for number, variable in enumerate(map(mapping, members(raw.get("env")))):
            name, value = text(variable.get("name")), variable.get("value")
            yield container, name, f"{where}/env/{number}", str(value) if words.adds_devices(name, value) else ""
        for number, volume in enumerate(members(raw.get("volumes"))):
            yield container, text(inside(volume, "hostPath").get("path")), f"{where}/volumes/{number}/hostPath", ""
