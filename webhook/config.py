"""DrawbridgeConfiguration: what an administrator declares, read strictly and as a whole.

`read` gives either a configuration or findings that name every mistake by its JSON pointer, never both and never a
configuration with parts left out. Watching the file, and keeping the last good one, is the rim's business.

`Configuration` is the compiled form: the dialects with this cluster's key names in place, and an index over them. It
is compared by identity, so that what was made for one configuration can be kept beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from dra.finding import Finding, Severity
from webhook.claims import AUTO
from webhook.dialects import BUILT_IN
from webhook.features import Scheduler
from webhook.shape import mistakes
from webhook.speech import HamiOptions, KoordinatorOptions, NvidiaOptions, Options
from webhook.table import Dialect, Place, Row, pattern
from webhook.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.wire import Json

API_VERSION = "drawbridge.dev/v1alpha1"
KIND = "DrawbridgeConfiguration"

Mode = Literal["observe", "warn", "enforce", "off"]


class _Declared(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in the file."""


class Model(_Declared, frozen=True, kw_only=True):
    """A device model and its memory, for percentages where the fleet can't be looked at."""

    product: str
    memory: str


class Joint(_Declared, frozen=True, kw_only=True):
    """Keys that belong together in a container: devices of both come in pairs under one value of an attribute."""

    primary: str
    secondary: str
    attribute: str = AUTO
    # Counts that do not divide, or no common attribute: leave the container, or refuse the pod.
    otherwise: Literal["leave", "refuse"] = "leave"


class Bridge(_Declared, frozen=True, kw_only=True):
    """The scheduler with our bridge, and the drivers whose devices it manages."""

    scheduler_name: str
    drivers: tuple[str, ...] = ()


class Metadata(_Declared, frozen=True, kw_only=True):
    name: str = ""


class File(_Declared, frozen=True, kw_only=True):
    """The file as it is written."""

    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["DrawbridgeConfiguration"]
    metadata: Metadata = Metadata()
    mode: Mode = "enforce"
    # Percent of the workloads in namespaces that enforce; the others are only warned.
    canary: int = 100
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Percentages where no device size is known.
    unresolved: Literal["leave", "refuse"] = "refuse"
    # Claims that the pod's scheduler would not understand.
    not_understood: Literal["leave", "refuse"] = "leave"
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    target_scheduler: str = "default-scheduler"
    # What a name means that several systems use: whole, shared, mig:<profile>, leave, or a dialect.
    meanings: dict[str, str] = {}
    # Target: the DeviceClass that serves it.
    classes: dict[str, str] = {}
    models: tuple[Model, ...] = ()
    # Dialect: its keys under the names this cluster uses; "" switches a key off.
    keys: dict[str, dict[str, str]] = {}
    # Dialects switched off altogether.
    disabled: tuple[str, ...] = ()
    # Tables of the administrator's own.
    dialects: tuple[Dialect, ...] = ()
    joint: tuple[Joint, ...] = ()
    # Key: the quota key that limits it from now on.
    quotas: dict[str, str] = {}
    schedulers: dict[str, Scheduler] = {}
    bridge: Bridge | None = None
    nvidia: NvidiaOptions = NvidiaOptions()
    hami: HamiOptions = HamiOptions()
    koordinator: KoordinatorOptions = KoordinatorOptions()


DEFAULT = File(api_version="drawbridge.dev/v1alpha1", kind="DrawbridgeConfiguration")


class Known(msgspec.Struct, frozen=True, gc=False):
    """A row of a dialect that a key on a pod fits, and what stood for its `<…>`."""

    dialect: Dialect
    row: Row
    part: str = ""


class Configuration:
    """A file that was found good, compiled."""

    __slots__ = ("_exact", "_patterns", "_places", "dialects", "file", "options", "sizes")

    def __init__(self, file: File = DEFAULT) -> None:
        self.file = file
        every = (*BUILT_IN, *file.dialects)
        self.dialects = tuple(_renamed(d, file.keys.get(d.name, {})) for d in every if d.name not in file.disabled)
        self.sizes: Mapping[str, int] = {m.product: _bytes(m.memory) for m in file.models}
        self.options = Options(
            nvidia=file.nvidia,
            hami=file.hami,
            koordinator=file.koordinator,
            numa_bind=file.numa_bind,
        )
        self._exact, self._patterns, self._places = _indexed(self.dialects)

    def resource(self, name: str) -> tuple[Known, ...]:
        """Find the rows that a resource name fits."""
        found = self._exact.get(name)
        if found is not None:
            return found
        for prefix, dialect, row in self._patterns:
            if name.startswith(prefix) and (match := pattern(row.name)(name)):
                return (Known(dialect, row, next(iter(match.groupdict().values()), "")),)
        return ()

    def rows(self, place: Place) -> Mapping[str, tuple[Known, ...]]:
        """The rows that stand elsewhere than on resources, by key; those with a `<…>` part say nothing to us."""
        return self._places.get(place, {})

    def serves(self, target: str) -> str:
        """The class declared for a target, "" if none is."""
        return self.file.classes.get(target, "")


def read(value: Json) -> tuple[Configuration | None, list[Finding]]:
    """Read a configuration object: a good one, or everything that is wrong with it."""
    name = f"{KIND}/{value['metadata']['name']}" if _named(value) else KIND
    if isinstance(value, dict) and value.get("mode") is False:
        value = value | {"mode": "off"}  # YAML reads a bare `off` as false
    found = [(path, text, hint) for path, text, hint in mistakes(value, File)]
    if not found:
        file = msgspec.convert(value, File)
        found = list(_contradictions(file))
        if not found:
            return Configuration(file), []
    return None, [
        Finding(code="C001", severity=Severity.ERROR, object=name, path=path, message=text, hint=hint)
        for path, text, hint in found
    ]


def _named(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("metadata"), dict) and bool(value["metadata"].get("name"))


Mistake = tuple[str, str, str]


def _contradictions(file: File) -> Iterable[Mistake]:
    """What fits the shape but makes no sense."""
    dialects = {d.name: d for d in (*BUILT_IN, *file.dialects)}
    yield from _unknown("/keys", file.keys, dialects, "dialect")
    yield from _unknown("/classes", file.classes, TARGETS, "target")
    yield from _unknown("/disabled", file.disabled, dialects, "dialect")
    for dialect, renames in file.keys.items():
        if dialect in dialects:
            known = {row.name for row in dialects[dialect].keys}
            yield from _unknown(f"/keys/{_token(dialect)}", renames, known, "key of the dialect")
    if not 0 <= file.canary <= 100:
        yield "/canary", f"{file.canary} is no percentage", "write 0 to 100"
    for key, meaning in file.meanings.items():
        if meaning not in ("whole", "shared", "leave", *dialects) and not meaning.startswith("mig:"):
            every = ", ".join(dialects)
            yield (
                f"/meanings/{_token(key)}",
                f"unknown meaning {meaning!r}",
                f"whole, shared, leave, mig:<profile>, or a dialect: {every}",
            )
    for i, model in enumerate(file.models):
        if not _bytes(model.memory):
            yield f"/models/{i}/memory", f"{model.memory!r} is no amount of memory", "write a quantity such as 80Gi"
    names = [table.name for table in file.dialects]
    for i, table in enumerate(file.dialects):
        if table.name in {d.name for d in BUILT_IN} or names.index(table.name) != i:
            yield f"/dialects/{i}/name", f"dialect {table.name!r} exists already", "choose another name"
        if table.rule != "plain":
            yield f"/dialects/{i}/rule", f"rule {table.rule!r} is not open to tables of your own", "leave it out"
        if table.target not in TARGETS:
            yield f"/dialects/{i}/target", f"unknown target {table.target!r}", f"one of {', '.join(TARGETS)}"
    for key, quota in file.quotas.items():
        if not quota:
            yield f"/quotas/{_token(key)}", "no quota key is given", "e.g. <class>.deviceclass.resource.k8s.io/devices"


def _unknown(path: str, names: Iterable[str], known: Iterable[str], what: str) -> Iterable[Mistake]:
    known = list(known)
    for i, name in enumerate(names):
        if name not in known:
            where = str(i) if isinstance(names, tuple) else _token(name)
            yield f"{path}/{where}", f"{name!r} is no {what}", f"one of {', '.join(known)}"


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _bytes(text: str) -> int:
    from dra.errors import QuantityError
    from dra.quantity import parse

    try:
        return max(parse(text).value(), 0)
    except QuantityError:
        return 0


def _renamed(dialect: Dialect, names: Mapping[str, str]) -> Dialect:
    if not names:
        return dialect
    rows = (msgspec.structs.replace(row, name=names.get(row.name, row.name)) for row in dialect.keys)
    return msgspec.structs.replace(dialect, keys=tuple(row for row in rows if row.name))


def _indexed(
    dialects: Iterable[Dialect],
) -> tuple[dict[str, tuple[Known, ...]], list[tuple[str, Dialect, Row]], dict[Place, dict[str, tuple[Known, ...]]]]:
    places: dict[Place, dict[str, tuple[Known, ...]]] = {}
    patterns: list[tuple[str, Dialect, Row]] = []
    for dialect in dialects:
        for row in dialect.keys:
            if "<" in row.name:
                if row.place is Place.RESOURCE:
                    patterns.append((row.name.partition("<")[0], dialect, row))
                continue
            at = places.setdefault(row.place, {})
            at[row.name] = (*at.get(row.name, ()), Known(dialect, row))
    # The longer pattern is the more specific one: mig-<profile>.shared before mig-<profile>.
    patterns.sort(key=lambda entry: -len(entry[2].name))
    return places.pop(Place.RESOURCE, {}), patterns, places
