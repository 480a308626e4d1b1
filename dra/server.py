"""A Kubernetes server as far as devices are concerned: its minor version, and its enabled feature gates.

The API server drops the fields of a disabled gate. If such a field is stored already, the scheduler's allocator refuses
or ignores it. The API server and the scheduler are assumed to run with the same gates. Gates of kubelets and drivers
are not considered.

The tables mirror `defaultVersionedKubernetesFeatureGates` and `defaultKubernetesFeatureGateDependencies` of the newest
minor (pkg/features/kube_features.go), which is 1.38.0-beta.0: a release may still change them. 1.34 is the oldest minor
here because it is the first with resource.k8s.io/v1.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dra.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST: Final = 34
# The newest release of Kubernetes. Commands assume it if no version is given. Tests that compare drawbridge with
# Kubernetes' own code use this release.
RELEASE: Final = "1.37.2"
CURRENT: Final = int(RELEASE.split(".")[1])
# The newest minor that is known, which may be unreleased.
NEWEST: Final = 38
SUPPORTED: Final = f"1.{OLDEST} to 1.{CURRENT}{f', 1.{NEWEST} (beta)' if NEWEST > CURRENT else ''}"

CLAIMS: Final = "DynamicResourceAllocation"
ADMIN_ACCESS: Final = "DRAAdminAccess"
CAPACITY: Final = "DRAConsumableCapacity"
DERIVED: Final = "DRADerivedAttributes"
BINDING: Final = "DRADeviceBindingConditions"
GROUPS: Final = "DRADeviceCompatibilityGroups"
TAINT_RULES: Final = "DRADeviceTaintRules"
TAINTS: Final = "DRADeviceTaints"
EXTENDED: Final = "DRAExtendedResource"
FRACTIONAL: Final = "DRAFractionalCapacityRange"
LISTS: Final = "DRAListTypeAttributes"
NODE_RESOURCES: Final = "DRANodeAllocatableResources"
OPTIONAL_OPERATIONS: Final = "DRAOptionalNodeOperations"
COUNTERS: Final = "DRAPartitionableDevices"
PARTITION_TYPE: Final = "DRAPartitionableDevicesType"
ALTERNATIVES: Final = "DRAPrioritizedList"
DEVICE_STATUS: Final = "DRAResourceClaimDeviceStatus"
POOL_STATUS: Final = "DRAResourcePoolStatus"
DECLARED: Final = "NodeDeclaredFeatures"


class GateStage(NamedTuple):
    """The state of a gate from a minor version on."""

    since: int
    maturity: str
    on: bool
    locked: bool = False


_ALPHA, _BETA, _GA = "alpha", "beta", "GA"
GATES: Final[Mapping[str, tuple[GateStage, ...]]] = {
    CLAIMS: (GateStage(34, _GA, on=True), GateStage(35, _GA, on=True, locked=True)),
    ADMIN_ACCESS: (GateStage(34, _BETA, on=True), GateStage(36, _GA, on=True, locked=True)),
    CAPACITY: (GateStage(34, _ALPHA, on=False), GateStage(36, _BETA, on=True), GateStage(38, _GA, on=True)),
    DERIVED: (GateStage(37, _ALPHA, on=False),),
    BINDING: (
        GateStage(34, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(38, _GA, on=True, locked=True),
    ),
    GROUPS: (GateStage(37, _ALPHA, on=False),),
    TAINT_RULES: (
        GateStage(35, _ALPHA, on=False),
        GateStage(36, _BETA, on=False),
        GateStage(37, _GA, on=True),
        GateStage(38, _GA, on=True, locked=True),
    ),
    TAINTS: (
        GateStage(33, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(37, _GA, on=True),
        GateStage(38, _GA, on=True, locked=True),
    ),
    EXTENDED: (
        GateStage(34, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(37, _GA, on=True, locked=True),
    ),
    # In 1.37, on only in a server that is started with --min-compatibility-version=1.37.
    FRACTIONAL: (GateStage(37, _BETA, on=False), GateStage(38, _GA, on=True)),
    LISTS: (GateStage(36, _ALPHA, on=False),),
    NODE_RESOURCES: (GateStage(36, _ALPHA, on=False),),
    OPTIONAL_OPERATIONS: (GateStage(37, _ALPHA, on=False),),
    COUNTERS: (
        GateStage(33, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(38, _GA, on=True, locked=True),
    ),
    PARTITION_TYPE: (GateStage(37, _ALPHA, on=False),),
    ALTERNATIVES: (
        GateStage(34, _BETA, on=True),
        GateStage(36, _GA, on=True),
        GateStage(37, _GA, on=True, locked=True),
    ),
    DEVICE_STATUS: (GateStage(33, _BETA, on=True), GateStage(37, _GA, on=True, locked=True)),
    POOL_STATUS: (GateStage(36, _ALPHA, on=False),),
    DECLARED: (
        GateStage(35, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(37, _GA, on=True, locked=True),
    ),
}
# The last minor that has a gate. Later minors behave as if the gate was on.
_LAST: Final[Mapping[str, int]] = {CLAIMS: 37}
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    BINDING: (DEVICE_STATUS,),
    GROUPS: (COUNTERS,),
    TAINT_RULES: (TAINTS,),
    FRACTIONAL: (CAPACITY,),
    OPTIONAL_OPERATIONS: (DECLARED,),
    PARTITION_TYPE: (COUNTERS, POOL_STATUS),
}
_DEPENDENCIES_CHECKED_SINCE = 35  # 1.34 also starts with a gate on and a gate that it needs off
_BOOLEANS: Final = {"true": True, "false": False}
_STAGE_GATES: Final[Mapping[str, str]] = {"AllAlpha": _ALPHA, "AllBeta": _BETA}


class Server(msgspec.Struct, frozen=True):
    """A minor of Kubernetes 1.x and its enabled gates. `server_of` and `read_server` start from the default gates."""

    minor: int
    gates: frozenset[str]

    def enabled(self, gate: str) -> bool:
        return gate in self.gates

    def __str__(self) -> str:
        usual = server_of(self.minor).gates
        changed = [f"{gate}={str(gate in self.gates).lower()}" for gate in sorted(self.gates ^ usual)]
        return f"Kubernetes 1.{self.minor}{' with ' if changed else ''}{', '.join(changed)}"


class DeclaredServer(msgspec.Struct, frozen=True):
    """The minor (0: none) and gates that an administrator declared.

    They count where the server does not report its own.
    """

    minor: int = 0
    gates: Mapping[str, bool] = {}
    # Declarations that are neither a version nor a gate.
    mistakes: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a server: its minor, and the state of some gates."""

    minor: int = CURRENT
    # Gates whose state the server reports, its version locks or an administrator declared, and gates that must be off
    # because the server reports that a gate they need is off.
    gates: Mapping[str, bool] = {}
    # Gates whose state the server itself reports.
    reported: Mapping[str, bool] = {}
    declared: DeclaredServer = DeclaredServer()

    @property
    def server(self) -> Server:
        """The server for the validation of claims.

        Unknown gates count as enabled, so that no claim is refused on a guess.
        """
        if self.minor == CURRENT and not self.gates:
            return EVERYTHING
        minor = _nearest(self.minor)
        return Server(minor, frozenset([gate for gate in known_gates(minor) if self.gates.get(gate, True)]))

    @property
    def likely(self) -> Server:
        """The server for the prediction of dropped fields. Unknown gates have the defaults of the server's version."""
        minor = _nearest(self.minor)
        known = known_gates(minor)
        return Server(minor, frozenset([gate for gate, stage in known.items() if self.gates.get(gate, stage.on)]))

    @property
    def guessed(self) -> dict[str, bool]:
        """The unknown gates, each with its default in the server's version."""
        known = known_gates(_nearest(self.minor))
        return {gate: stage.on for gate, stage in sorted(known.items()) if gate not in self.gates}

    @property
    def assumed(self) -> dict[str, bool]:
        """The gates that have the declared state because the server does not report them."""
        declared = _expand_stages(_nearest(self.minor), self.declared.gates)
        return {gate: on for gate, on in sorted(self.gates.items()) if gate in declared and gate not in self.reported}

    @property
    def overruled(self) -> tuple[str, ...]:
        """The declarations that the server contradicts."""
        contradictions: list[str] = []
        declared = self.declared
        if declared.minor not in {0, self.minor}:
            contradictions.append(f"version 1.{declared.minor}: it is 1.{self.minor}")
        for gate, declared_state in sorted(declared.gates.items()):
            on = self.gates.get(gate)
            if gate not in _STAGE_GATES and on != declared_state:
                actual = "the server does not have it" if on is None else f"it is {_boolean(on)}"
                contradictions.append(f"{gate}={_boolean(declared_state)}: {actual}")
        return tuple(contradictions)

    def doubts(self) -> str:
        """Describe what the server did not report, and declarations that are wrong; "" if there is neither."""
        parts: list[str] = []
        if guessed := [f"{gate} ({'on' if on else 'off'} by default)" for gate, on in self.guessed.items()]:
            parts.append(
                f"unknown feature gates, assumed on for claims and default for other objects: {', '.join(guessed)}"
            )
        if assumed := [f"{gate}={_boolean(on)}" for gate, on in self.assumed.items()]:
            parts.append(f"declared feature gates that the server does not confirm: {', '.join(assumed)}")
        if self.declared.mistakes:
            parts.append(f"declarations not understood: {', '.join(self.declared.mistakes)}")
        if self.overruled:
            parts.append(f"wrong declarations (`kubernetes` of the configuration): {', '.join(self.overruled)}")
        return f"Kubernetes 1.{self.minor}: {'; '.join(parts)}" if parts else ""


def known_of(minor: int, reported: Mapping[str, bool], declared: DeclaredServer = DeclaredServer()) -> KnownServer:  # noqa: B008  a value
    """Combine what is known of a server.

    Locked gates override reported gates; reported gates override declared gates.
    """
    nearest = _nearest(minor)
    gates = _expand_stages(nearest, declared.gates)
    # If the server reports that a gate is off, the gates that need this gate are off: otherwise it would not have
    # started.
    off = {gate for gate, state in reported.items() if not state}
    if nearest >= _DEPENDENCIES_CHECKED_SINCE:
        gates |= {gate: False for gate, needs in NEEDS.items() if not off.isdisjoint(needs)}
    gates |= reported
    for gate, stage in known_gates(nearest).items():
        if stage.locked:
            gates[gate] = stage.on
    return KnownServer(minor=minor, gates=gates, reported=dict(reported), declared=declared)


def _expand_stages(minor: int, declared: Mapping[str, bool]) -> dict[str, bool]:
    """Replace AllAlpha and AllBeta by the gates of that stage.

    A gate that is declared by its own name keeps its value.
    """
    stages = known_gates(minor)
    expanded: dict[str, bool] = {}
    for name, maturity in _STAGE_GATES.items():
        if name in declared:
            expanded |= {gate: declared[name] for gate, stage in stages.items() if stage.maturity == maturity}
    return expanded | {gate: on for gate, on in declared.items() if gate in stages}


def _nearest(minor: int) -> int:
    return min(max(minor, OLDEST), NEWEST)


def _boolean(value: object) -> str:
    return str(value).lower()


def known_gates(minor: int) -> dict[str, GateStage]:
    """Return the gates that Kubernetes has in a minor, each with its stage in that minor."""
    reached = {gate: [stage for stage in stages if stage.since <= minor] for gate, stages in GATES.items()}
    return {gate: stages[-1] for gate, stages in reached.items() if stages and minor <= _LAST.get(gate, minor)}


def server_of(minor: int = CURRENT, changes: Mapping[str, bool] | None = None) -> Server:
    """Make a server with default gates and these changes; raise ServerError if Kubernetes would not start with them."""
    stages = known_gates(minor)
    if not OLDEST <= minor <= NEWEST:
        raise ServerError(f"Kubernetes 1.{minor} is not supported", f"choose one of {SUPPORTED}")
    for gate, value in (changes or {}).items():
        if gate not in _STAGE_GATES:
            _require_settable(gate, minor, stages, value=value)
    states = {gate: stage.on for gate, stage in stages.items()} | _expand_stages(minor, changes or {})
    gates = frozenset([gate for gate, value in states.items() if value])
    for gate, needs in NEEDS.items() if minor >= _DEPENDENCIES_CHECKED_SINCE else ():
        disabled_needs = [need for need in needs if need not in gates]
        if gate in gates and disabled_needs:
            raise ServerError(f"Kubernetes 1.{minor} does not start with {gate} on and {disabled_needs[0]} off")
    return Server(minor, gates)


def read_server(version: str = "", gates: str = "") -> Server:
    """Parse the values of `--kubernetes` (`1.35`) and `--feature-gates` (`GATE=true,GATE=false`)."""
    return server_of(read_minor(version) if version else CURRENT, read_changes(gates))


def mistakes(version: str, gates: Mapping[str, bool]) -> Iterator[tuple[str, ServerError]]:
    """Yield each wrong gate of a declaration with its error; for the version, the gate is "".

    If no version is declared, a gate is wrong only if it is wrong in every supported version.
    """
    minors = [*range(NEWEST, OLDEST - 1, -1)]
    try:
        if version:
            minors = [server_of(read_minor(version)).minor]
    except ServerError as error:
        yield "", error
    for gate, on in gates.items():
        errors: list[ServerError] = []
        for minor in minors if gate not in _STAGE_GATES else ():
            try:
                _require_settable(gate, minor, known_gates(minor), value=on)
            except ServerError as error:
                errors.append(error)
        if errors and len(errors) == len(minors):
            yield gate, errors[0]


def read_minor(version: str) -> int:
    """Parse the minor from `1.35`, `v1.35.2` or `35`."""
    parts = version.strip().removeprefix("v").split(".")
    number = parts[0] if len(parts) == 1 else parts[1]
    if not (number.isascii() and number.isdigit() and len(number) < 4) or (len(parts) > 1 and parts[0] != "1"):
        raise ServerError(f"{version[:40]!r} is not a Kubernetes version", f"choose one of {SUPPORTED}")
    return int(number)


def read_changes(text: str) -> dict[str, bool]:
    """Parse the value of a server's `--feature-gates`. If the list names a gate twice, the last value counts."""
    changes: dict[str, bool] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        gate, _, value = entry.partition("=")
        state = _BOOLEANS.get(value.strip().lower())
        if state is None:
            raise ServerError(f"{entry[:80]!r} is not GATE=true or GATE=false")
        changes[gate.strip()] = state
    return changes


def _require_settable(gate: str, minor: int, stages: Mapping[str, GateStage], *, value: bool) -> None:
    """Raise ServerError if a server of this minor does not start with the gate set to `value`."""
    stage = stages.get(gate)
    if stage is not None:
        if stage.locked and value != stage.on:
            raise ServerError(
                f"{gate} cannot be set to {_boolean(value)}: Kubernetes 1.{minor} has it locked to {_boolean(stage.on)}",
                "leave it out",
            )
        return
    own_stages = GATES.get(gate)
    if own_stages is not None:
        last = _LAST.get(gate, NEWEST)
        limit = f"1.{last} is the last" if minor > last else f"1.{own_stages[0].since} is the first"
        raise ServerError(f"Kubernetes 1.{minor} has no feature gate {gate}", f"{limit} that has it")
    similar = difflib.get_close_matches(gate[:80], [*stages, *_STAGE_GATES], n=1, cutoff=0.7)
    names = ", ".join(sorted(stages))
    hint = (
        f"did you mean {similar[0]}?"
        if similar
        else f"leave out feature gates that do not concern devices; known feature gates: {names}"
    )
    raise ServerError(f"{gate[:80]!r} is not a known feature gate for devices", hint)


# All gates enabled, including those that are off by default.
EVERYTHING: Final = Server(CURRENT, frozenset(GATES))
