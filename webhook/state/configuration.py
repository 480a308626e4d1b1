"""DrawbridgeConfiguration: what an administrator declares, read strictly and as a whole.

`read` gives either a configuration or findings that name every mistake by its JSON pointer, and never a configuration with parts
left out, but for names of feature gates and fields of drivers: which there are depends on versions, so one that is not known is warned of. Watching the file, and keeping the last good one, is the rim's business.

`Configuration` is the compiled form: the dialects with this cluster's key names in place, and an index over them. It
is compared by identity, so that what was made for one configuration can be kept beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dra.finding import Finding, Severity
from dra.pointer import split
from dra.validation import CODES, shape
from webhook.dialects import (
    TARGETS,
    VOCABULARIES,
    Dialect,
    Known,
    Mistake,
    Options,
    Position,
    Role,
    Row,
    Scheduler,
    Vocabulary,
    pattern,
    plain,
)
from webhook.state.features import SCHEDULERS
from webhook.state.node_templates import wrong_templates
from webhook.state.rules import bytes_of, contradictions, dubious, misnamed
from webhook.state.schema import DEFAULT, WHOLE_FILE, File

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.wire import Json
    from webhook.dialects import Target

KIND = "DrawbridgeConfiguration"
_LONGEST_NAME = 253 + 1 + 63  # of a resource, as the API server has it


_Rows = dict[str, tuple[Known, ...]]  # by key
_Pattern = tuple[str, Dialect, Row]  # what stands before the `<`


class Configuration:
    """A file that was found good, compiled: what every pod is looked up in is laid out once."""

    __slots__ = (
        "_exact",
        "_patterns",
        "_without_domain",
        "asking",
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
        declared = [plain.vocabulary_of(table, self.targets) for table in file.dialects]
        every = (*VOCABULARIES, *declared)
        built_in = {one.table.name for one in VOCABULARIES}
        # By the name of their table, which has this cluster's key names; those that are switched off are not there.
        self.vocabularies: dict[str, Vocabulary[Any]] = {}
        # How the system of each is set up; tables of the administrator's own have nothing to set.
        self.options: dict[str, Options] = {}
        for one in every:
            name = one.table.name
            if name in file.disabled:
                continue
            self.vocabularies[name] = _rename(one, file.keys.get(name, {}))
            self.options[name] = file.options(name) if name in built_in else Options()
        self.dialects = tuple([vocabulary.table for vocabulary in self.vocabularies.values()])
        self.sizes: Mapping[str, int] = {model.product: bytes_of(model.memory) for model in file.models}
        self.schedulers: dict[str, Scheduler] = dict(SCHEDULERS)
        for one in every:
            self.schedulers |= one.schedulers
        if file.bridge is not None:
            # drawbridge's allocator serves what the cluster's own does.
            self.schedulers[file.bridge.scheduler_name] = Scheduler(like_cluster=True)
        self.schedulers |= file.schedulers
        # `rows` are those that stand elsewhere than on resources, by key; those with a `<…>` part say nothing to us.
        positions, patterns = _index(self.dialects)
        # Patterns by what stands before them up to the slash; one without a slash, which a renaming makes, is looked at for every name.
        self._without_domain = [one for one in patterns if "/" not in one[0]]
        domains = {prefix[: prefix.index("/") + 1] for prefix, _, _ in patterns if "/" in prefix}
        self._patterns = {
            domain: [one for one in patterns if "/" not in one[0] or one[0].startswith(domain)] for domain in domains
        }
        self._exact = positions.pop(Position.RESOURCE)
        self.rows: Mapping[Position, _Rows] = positions
        # By table of the administrator's own and by name: variables that say something about their container.
        self.variables: Mapping[str, Mapping[str, Row]] = _variables(file, self.vocabularies)
        # Whether more of a pod decides than what is read of every one: tables of the administrator's, and policies of a mixed fleet.
        self.reads_all = bool(self.variables or file.mixed)
        # Annotations and labels that may ask for devices by themselves.
        rows = [row for table in self.dialects for row in table.keys]
        self.asking = frozenset(row.name for row in rows if row.role is Role.ASKS)

    def resource(self, name: str) -> tuple[Known, ...]:
        """Find the rows that a resource name fits."""
        found = self._exact.get(name)
        if found is not None:
            return found
        if len(name) > _LONGEST_NAME:
            return ()
        domain, slash, _ = name.partition("/")
        for prefix, dialect, row in self._patterns.get(domain + slash, self._without_domain):
            if name.startswith(prefix) and (match := pattern(row.name)(name)):
                part = next(iter(match.groupdict().values()), "")
                return (Known(dialect, row, part),)
        return ()


def read(value: Json) -> tuple[Configuration | None, list[Finding]]:
    """Read a configuration object: a good one and what of it is passed over, or everything that is wrong with it."""
    name = KIND
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and metadata.get("name"):
            name = f"{KIND}/{metadata['name']}"
        if value.get("mode") is False:
            value = value | {"mode": "off"}  # YAML reads a bare `off` as false
        broken = shape.check(value, WHOLE_FILE)
    else:
        broken = [shape.expected_object(value)]
    mistakes = [Mistake(one.path, one.message, one.hint or CODES[one.code].hint) for one in broken]
    # Members with a mistake of shape are left out, and the others are judged.
    bad = {_first(problem.path) for problem in broken}
    if isinstance(value, dict):
        good = {member: part for member, part in value.items() if member not in bad}
        file = shape.read(good | {"apiVersion": DEFAULT.api_version, "kind": KIND}, WHOLE_FILE)
    else:
        file = None
    if file is not None:
        # A broken table may have made names known, so unknown names are not reported beside it.
        lacks_names = not bad.isdisjoint(_NAMES_MADE)
        mistakes += [
            found for found in contradictions(file) if not lacks_names or _first(found.path) not in _NAMES_USED
        ]
        mistakes += wrong_templates(file.node_templates)
        if not mistakes:
            configuration = Configuration(file)
            findings = _findings("C002", misnamed(file.kubernetes), name)
            for one in dubious(file, configuration.targets):
                hint = one.hint or CODES[one.code].hint
                found = Finding(
                    code=one.code, severity=Severity.WARNING, object=name, path=one.path, message=one.message, hint=hint
                )
                findings.append(found)
            return configuration, findings
    return None, _findings("C001", mistakes, name)


def _findings(code: str, mistakes: Iterable[Mistake], name: str) -> list[Finding]:
    severity = CODES[code].severity
    return [
        Finding(code=code, severity=severity, object=name, path=one.path, message=one.message, hint=one.hint)
        for one in mistakes
    ]


# Members of a file that make names known, and those that use such names.
_NAMES_MADE = frozenset(("dialects", "keys", "targets"))
_NAMES_USED = frozenset(("keys", "disabled", "meanings", "joint", "classes", "parameters", "dialects"))


def _first(pointer: str) -> str:
    return next(iter(split(pointer)), "")


def _rename(one: Vocabulary[Any], names: Mapping[str, str]) -> Vocabulary[Any]:
    """Give the rows of a table this cluster's names; a row that is given none goes."""
    if not names:
        return one
    named = [(names.get(row.name, row.name), row) for row in one.table.keys]
    rows = tuple([msgspec.structs.replace(row, name=name) for name, row in named if name])
    return msgspec.structs.replace(one, table=msgspec.structs.replace(one.table, keys=rows))


def _variables(file: File, vocabularies: Mapping[str, Vocabulary[Any]]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for table in file.dialects:
        renamed = vocabularies.get(table.name)
        if renamed is None:
            continue
        for row in renamed.table.keys:
            if row.place is Position.ENV and row.role is not Role.NONE:
                rows = found.setdefault(table.name, {})
                rows[row.name] = row
    return found


def _index(dialects: Iterable[Dialect]) -> tuple[dict[Position, _Rows], list[_Pattern]]:
    positions: dict[Position, _Rows] = {place: {} for place in Position}
    patterns: list[_Pattern] = []
    for dialect in dialects:
        for row in dialect.keys:
            name = row.name
            prefix, mark, _ = name.partition("<")
            if not mark:
                rows = positions[row.place]
                rows[name] = (*rows.get(name, ()), Known(dialect, row))
            elif row.place is Position.RESOURCE:
                patterns.append((prefix, dialect, row))
    # The longer pattern is the more specific one: mig-<profile>.shared before mig-<profile>.
    patterns.sort(key=lambda entry: len(entry[2].name), reverse=True)
    return positions, patterns


__all__ = ["DEFAULT", "KIND", "Configuration", "read"]
