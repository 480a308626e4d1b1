"""Reads a DrawbridgeConfiguration strictly and compiles it.

`read_configuration` returns a complete configuration, or a finding with a JSON pointer for each mistake. Unknown feature gates and unknown
fields of driver parameters are only warnings, because they depend on versions.

`Configuration` is the compiled form: the dialects with the key names of this cluster, and an index of their keys. It is compared by identity, so
that results can be cached for each configuration.
"""

from __future__ import annotations

from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dra.finding import Finding, Severity
from dra.pointer import split
from dra.validation import CODES, findings, shape
from webhook.dialects import (
    TARGETS,
    VOCABULARIES,
    Dialect,
    DialectOptions,
    KnownRow,
    Outcome,
    Position,
    Role,
    Row,
    SchedulerSupport,
    Vocabulary,
    pattern,
    plain,
)
from webhook.state.configuration_rules import bytes_of, contradictions, doubtful_parameters, wrong_kubernetes_settings
from webhook.state.features import SCHEDULERS
from webhook.state.node_templates import wrong_templates
from webhook.state.schema import DEFAULT, WHOLE_FILE, File

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.wire import Json
    from webhook.dialects import Target

KIND = "DrawbridgeConfiguration"
_MAX_NAME = 253 + 1 + 63  # characters of a resource name, as in the API server


_Rows = dict[str, tuple[KnownRow, ...]]  # by key
_Pattern = tuple[str, Dialect, Row]  # the row's name up to its `<`, the dialect, the row


_BUILT_IN = tuple(vocabulary.table for vocabulary in VOCABULARIES)
_BUILT_IN_NAMES = {table.name for table in _BUILT_IN}


class _Index:
    """Finds the rows of a key in the tables of dialects."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        # Rows by position and key. Rows whose name has a varying part are patterns.
        positions: dict[Position, _Rows] = {position: {} for position in Position}
        patterns: list[_Pattern] = []
        self.patterned: list[_Pattern] = []
        for dialect in dialects:
            for row in dialect.keys:
                prefix, mark, _ = row.name.partition("<")
                if not mark:
                    rows_by_key = positions[row.place]
                    rows_by_key[row.name] = (*rows_by_key.get(row.name, ()), KnownRow(dialect, row))
                elif row.place is Position.RESOURCE:
                    patterns.append((prefix, dialect, row))
                else:
                    self.patterned.append((prefix, dialect, row))
        self.exact = positions.pop(Position.RESOURCE)
        self.rows: Mapping[Position, _Rows] = positions
        # The longer pattern is the more specific one: mig-<profile>.shared before mig-<profile>.
        patterns.sort(key=lambda entry: len(entry[2].name), reverse=True)
        # Patterns by domain. A pattern lacks a domain only if `keys` gives it such a name. Patterns without a domain are tried for each name.
        self.without_domain = [entry for entry in patterns if "/" not in entry[0]]
        domains = {prefix[: prefix.index("/") + 1] for prefix, _, _ in patterns if "/" in prefix}
        self.patterns = {
            domain: [entry for entry in patterns if "/" not in entry[0] or entry[0].startswith(domain)]
            for domain in domains
        }
        # Environment variables that the administrator's own tables read, by table and name.
        self.variables: dict[str, dict[str, Row]] = {}
        for table in dialects:
            for row in table.keys if table.name not in _BUILT_IN_NAMES else ():
                if row.place is Position.ENV and row.role is not Role.NONE:
                    self.variables.setdefault(table.name, {})[row.name] = row
        # Annotations and labels that request devices without a resource key.
        requesting_rows = [row for table in dialects for row in table.keys if row.role is Role.REQUESTS_DEVICES]
        self.asking = frozenset(row.name for row in requesting_rows)
        self.translates_asking = any(row.outcome is not Outcome.LEFT for row in requesting_rows)
        self.prefixes = tuple(prefix for prefix, _, _ in self.patterned)
        self.asking_prefixes = tuple(row.name.partition("<")[0] for row in requesting_rows if "<" in row.name)


@cache
def _built_in_index() -> _Index:
    return _Index(_BUILT_IN)


class Configuration:
    """A valid file, with the lookup tables that every pod needs."""

    __slots__ = (
        "_index",
        "claims_cpus",
        "dialects",
        "file",
        "options",
        "reads_all",
        "rows",
        "schedulers",
        "sizes",
        "targets",
        "variables",
        "vocabularies",
    )

    def __init__(self, file: File = DEFAULT) -> None:
        self.file = file
        self.claims_cpus = file.cpu_claims.anywhere
        self.targets: Mapping[str, Target] = TARGETS | {target.name: target for target in file.targets}
        own_vocabularies = [plain.vocabulary_of(table, *self.targets.values()) for table in file.dialects]
        all_vocabularies = (*VOCABULARIES, *own_vocabularies)
        # Enabled vocabularies by name, with this cluster's key names.
        self.vocabularies: dict[str, Vocabulary[Any]] = {}
        self.options: dict[str, DialectOptions] = {}
        for vocabulary in all_vocabularies:
            name = vocabulary.table.name
            if name in file.disabled:
                continue
            options = self.options[name] = file.options(name) if name in _BUILT_IN_NAMES else DialectOptions()
            table = options.table(vocabulary.table)
            if renames := file.keys.get(table.name):
                rows = [(renames.get(row.name, row.name), row) for row in table.keys]
                keys = tuple([msgspec.structs.replace(row, name=name) for name, row in rows if name])
                table = msgspec.structs.replace(table, keys=keys)
            self.vocabularies[table.name] = msgspec.structs.replace(vocabulary, table=table)
        self.dialects = tuple([vocabulary.table for vocabulary in self.vocabularies.values()])
        self.sizes: Mapping[str, int] = {model.product: bytes_of(model.memory) for model in file.models}
        self.schedulers: dict[str, SchedulerSupport] = dict(SCHEDULERS)
        for vocabulary in all_vocabularies:
            self.schedulers |= vocabulary.schedulers
        if file.bridge is not None:
            # The bridge's allocator supports the same features as the cluster's scheduler.
            self.schedulers[file.bridge.scheduler_name] = SchedulerSupport(like_cluster=True)
        self.schedulers |= file.schedulers
        # Most configurations have only the built-in tables, whose index is built once.
        is_built_in = len(self.dialects) == len(_BUILT_IN) and all(map(is_, self.dialects, _BUILT_IN))
        self._index = _built_in_index() if is_built_in else _Index(self.dialects)
        self.rows = self._index.rows
        self.variables = self._index.variables
        # Whether a decision depends on more fields of a pod than `admission_review.decode_pod` decodes.
        self.reads_all = bool(file.mixed or self._index.translates_asking)

    def asks(self, keys: Iterable[str]) -> bool:
        """Return whether one of these annotations or labels requests devices by itself."""
        return not self._index.asking.isdisjoint(keys) or any(
            name.startswith(self._index.asking_prefixes) for name in keys
        )

    def is_amount(self, annotation: str) -> bool:
        """Return whether an annotation requests devices by itself and is translated."""
        rows = [known.row for known in self.word(Position.ANNOTATION, annotation)]
        return any(row.role is Role.REQUESTS_DEVICES and row.outcome is not Outcome.LEFT for row in rows)

    def word(self, position: Position, name: str) -> tuple[KnownRow, ...]:
        """Return the rows of a key in a position other than resources."""
        known = self.rows[position].get(name)
        if known is not None:
            return known
        if len(name) > _MAX_NAME or not name.startswith(self._index.prefixes):
            return ()
        return tuple(
            [
                KnownRow(dialect, row)
                for _, dialect, row in self._index.patterned
                if row.place is position and pattern(row.name)(name)
            ]
        )

    def resource(self, name: str) -> tuple[KnownRow, ...]:
        """Return the rows of a resource name, of all dialects that have it."""
        known = self._index.exact.get(name)
        if known is not None:
            return known
        if len(name) > _MAX_NAME:
            return ()
        domain, slash, _ = name.partition("/")
        for prefix, dialect, row in self._index.patterns.get(domain + slash, self._index.without_domain):
            if name.startswith(prefix) and (match := pattern(row.name)(name)):
                part = next(iter(match.groupdict().values()), "")
                return (KnownRow(dialect, row, part),)
        return ()


def read_configuration(value: Json) -> tuple[Configuration | None, list[Finding]]:
    """Return the configuration in an object and its warnings, or None and all mistakes."""
    name = KIND
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and metadata.get("name"):
            name = f"{KIND}/{metadata['name']}"
        if value.get("mode") is False:
            value = value | {"mode": "off"}  # YAML reads a bare `off` as false
        shape_problems = shape.check(value, WHOLE_FILE)
    else:
        shape_problems = [shape.expected_object(value)]
    mistakes = [
        replace(finding, code="C001", severity=Severity.ERROR, remedy=_HINTS.get(finding.remedy, finding.remedy))
        for finding in shape_problems
    ]
    # Fields of the wrong type are left out, so that the other fields can be checked.
    bad_fields = {_first_field(problem.path) for problem in shape_problems}
    if isinstance(value, dict):
        good_fields = {member: part for member, part in value.items() if member not in bad_fields}
        file = shape.convert_checked(good_fields | {"apiVersion": DEFAULT.api_version, "kind": KIND}, WHOLE_FILE)
    else:
        file = None
    if file is not None:
        # If a field that defines names has the wrong type, unknown names are not reported: it may define them.
        unchecked = frozenset[str]() if bad_fields.isdisjoint(_DEFINING_NAMES) else _USING_NAMES
        mistakes += [
            contradiction for contradiction in contradictions(file) if _first_field(contradiction.path) not in unchecked
        ]
        mistakes += wrong_templates(file.node_templates)
        if not mistakes:
            configuration = Configuration(file)
            doubts = [
                replace(doubtful_parameter, severity=Severity.WARNING)
                for doubtful_parameter in doubtful_parameters(file, configuration.targets)
            ]
            return configuration, findings([*wrong_kubernetes_settings(file.kubernetes), *doubts], name)
    return None, findings(mistakes, name)


# Replacements for remedies that mention the API server, which does not read this file.
_HINTS = {CODES["D002"].remedy: "remove the field or correct its name: `drawbridge schema config` lists the fields"}


# Fields of the file that define names, and those that use such names.
_DEFINING_NAMES = frozenset(("dialects", "keys", "targets"))
_USING_NAMES = frozenset(("keys", "disabled", "meanings", "joint", "classes", "parameters", "dialects"))


def _first_field(pointer: str) -> str:
    return next(iter(split(pointer)), "")


__all__ = ["DEFAULT", "KIND", "Configuration", "read_configuration"]
