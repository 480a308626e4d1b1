"""The configuration file: its shape, and what fits the shape but makes no sense.

Data only. What it compiles to is `webhook.state.configuration`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from dra.errors import QuantityError
from dra.pointer import escape
from dra.quantity import parse
from webhook.dialects import (
    AUTO,
    BUILT_IN,
    TARGETS,
    Dialect,
    HamiOptions,
    KoordinatorOptions,
    NvidiaOptions,
    Position,
    pattern,
    profile_of,
)
from webhook.state.features import Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class Mistake(NamedTuple):
    """What is wrong at a place, and what to do."""

    path: str
    message: str
    hint: str


def contradictions(file: File) -> Iterable[Mistake]:
    """What fits the shape but makes no sense."""
    dialects = {d.name: d for d in (*BUILT_IN, *file.dialects)}
    yield from _unknown("/keys", file.keys, dialects, "dialect")
    yield from _unknown("/classes", file.classes, TARGETS, "target")
    yield from _unknown("/disabled", file.disabled, dialects, "dialect")
    for dialect, renames in file.keys.items():
        if dialect in dialects:
            known = {row.name for row in dialects[dialect].keys}
            yield from _unknown(f"/keys/{escape(dialect)}", renames, known, "key of the dialect")
    if not 0 <= file.canary <= 100:
        yield Mistake("/canary", f"{file.canary} is not a percentage", "write 0 to 100")
    for key, meaning in file.meanings.items():
        profile = meaning.startswith("mig:") and profile_of(meaning.removeprefix("mig:"))
        if meaning not in ("whole", "shared", "leave", *dialects) and not profile:
            every = ", ".join(dialects)
            yield Mistake(
                f"/meanings/{escape(key)}",
                f"unknown meaning {meaning!r}",
                f"whole, shared, leave, mig:<profile>, or a dialect: {every}",
            )
    for i, model in enumerate(file.models):
        if not bytes_of(model.memory):
            yield Mistake(
                f"/models/{i}/memory", f"{model.memory!r} is not an amount of memory", "write a quantity such as 80Gi"
            )
    names = [table.name for table in file.dialects]
    for i, table in enumerate(file.dialects):
        if table.name in {d.name for d in BUILT_IN} or names.index(table.name) != i:
            yield Mistake(f"/dialects/{i}/name", f"dialect {table.name!r} exists already", "choose another name")
        if table.rule != "plain":
            yield Mistake(
                f"/dialects/{i}/rule", f"rule {table.rule!r} is not open to tables of your own", "leave it out"
            )
        if table.target not in TARGETS:
            yield Mistake(f"/dialects/{i}/target", f"unknown target {table.target!r}", f"one of {', '.join(TARGETS)}")
        yield from _rows(table, f"/dialects/{i}/keys")
    yield from _joints(file, dialects.values())
    if file.hami.memory_factor < 1:
        yield Mistake("/hami/memoryFactor", f"{file.hami.memory_factor} MiB is not a unit", "write 1 or more")
    for key, quota in file.quotas.items():
        if not quota:
            yield Mistake(
                f"/quotas/{escape(key)}", "no quota key is given", "e.g. <class>.deviceclass.resource.k8s.io/devices"
            )


def _rows(table: Dialect, path: str) -> Iterable[Mistake]:
    """What is wrong with the rows of an administrator's table."""
    for i, row in enumerate(table.keys):
        if row.target and row.target not in TARGETS:
            yield Mistake(f"{path}/{i}/target", f"unknown target {row.target!r}", f"one of {', '.join(TARGETS)}")
        if row.most is not None and row.most < row.least:
            yield Mistake(f"{path}/{i}/most", f"{row.most} is below {row.least}", "write least and most in order")


def _joints(file: File, dialects: Iterable[Dialect]) -> Iterable[Mistake]:
    """Keys can only be put together if some table knows them."""
    renamed = {name for names in file.keys.values() for name in names.values()}
    known = {row.name for dialect in dialects for row in dialect.keys if row.place is Position.RESOURCE} | renamed
    for i, joint in enumerate(file.joint):
        for part in ("primary", "secondary"):
            name = getattr(joint, part)
            if not any(name == row or ("<" in row and pattern(row)(name)) for row in known):
                hint = "describe it in a table of your own (`dialects`)"
                yield Mistake(f"/joint/{i}/{part}", f"no dialect knows the key {name!r}", hint)


def _unknown(path: str, names: Iterable[str], known: Iterable[str], what: str) -> Iterable[Mistake]:
    known = list(known)
    for i, name in enumerate(names):
        if name not in known:
            where = str(i) if isinstance(names, tuple) else escape(name)
            yield Mistake(f"{path}/{where}", f"{name!r} is not a {what}", f"one of {', '.join(known)}")


def bytes_of(text: str) -> int:
    """Read an amount of memory; 0 if it is none."""
    try:
        return max(parse(text).value(), 0)
    except QuantityError:
        return 0
