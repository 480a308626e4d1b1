"""A Kubernetes server as far as devices are concerned: its minor version, and the feature gates that are on in it.

The API server drops what is behind a closed gate, the scheduler's allocator refuses or passes over what is stored of it all
the same. Both are taken to be started with the same gates, as a cluster's are; kubelets and drivers are not looked at.

The table is `defaultVersionedKubernetesFeatureGates` and `defaultKubernetesFeatureGateDependencies` of Kubernetes 1.37.1
(pkg/features/kube_features.go), which keeps the stages of every minor since the gate was made. 1.34 is the oldest that serves
resource.k8s.io/v1, and thus the oldest here.
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
NEWEST: Final = 37

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
    """What a gate is from a minor on."""

    since: int
    maturity: str
    on: bool
    locked: bool = False


_ALPHA, _BETA, _GA = "alpha", "beta", "GA"
GATES: Final[Mapping[str, tuple[GateStage, ...]]] = {
    CLAIMS: (GateStage(34, _GA, on=True), GateStage(35, _GA, on=True, locked=True)),
    ADMIN_ACCESS: (GateStage(34, _BETA, on=True), GateStage(36, _GA, on=True, locked=True)),
    CAPACITY: (GateStage(34, _ALPHA, on=False), GateStage(36, _BETA, on=True)),
    DERIVED: (GateStage(37, _ALPHA, on=False),),
    BINDING: (GateStage(34, _ALPHA, on=False), GateStage(36, _BETA, on=True)),
    GROUPS: (GateStage(37, _ALPHA, on=False),),
    TAINT_RULES: (GateStage(35, _ALPHA, on=False), GateStage(36, _BETA, on=False), GateStage(37, _GA, on=True)),
    TAINTS: (GateStage(33, _ALPHA, on=False), GateStage(36, _BETA, on=True), GateStage(37, _GA, on=True)),
    EXTENDED: (
        GateStage(34, _ALPHA, on=False),
        GateStage(36, _BETA, on=True),
        GateStage(37, _GA, on=True, locked=True),
    ),
    # On only in a server that is started with --min-compatibility-version=1.37.
    FRACTIONAL: (GateStage(37, _BETA, on=False),),
    LISTS: (GateStage(36, _ALPHA, on=False),),
    NODE_RESOURCES: (GateStage(36, _ALPHA, on=False),),
    OPTIONAL_OPERATIONS: (GateStage(37, _ALPHA, on=False),),
    COUNTERS: (GateStage(33, _ALPHA, on=False), GateStage(36, _BETA, on=True)),
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
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    BINDING: (DEVICE_STATUS,),
    GROUPS: (COUNTERS,),
    TAINT_RULES: (TAINTS,),
    FRACTIONAL: (CAPACITY,),
    OPTIONAL_OPERATIONS: (DECLARED,),
    PARTITION_TYPE: (COUNTERS, POOL_STATUS),
}
_CHECKED_SINCE = 35  # a server that old starts with a gate whose needs are off
_WORDS: Final = {"true": True, "false": False}
_MANY: Final[Mapping[str, str]] = {"AllAlpha": _ALPHA, "AllBeta": _BETA}


class Server(msgspec.Struct, frozen=True):
    """A minor of Kubernetes 1.x and the gates that are on. Made by `server_of` and `read_server`, which know the defaults."""

    minor: int
    gates: frozenset[str]

    def on(self, gate: str) -> bool:
        """Say whether a gate is on."""
        return gate in self.gates

    def __str__(self) -> str:
        usual = server_of(self.minor).gates
        changed = [f"{gate}={str(gate in self.gates).lower()}" for gate in sorted(self.gates ^ usual)]
        return f"Kubernetes 1.{self.minor}{' with ' if changed else ''}{', '.join(changed)}"


class Declared(msgspec.Struct, frozen=True):
    """What an administrator says of a server: its minor, 0 for nothing, and gates. It counts where the server tells nothing."""

    minor: int = 0
    gates: Mapping[str, bool] = {}
    # What else was written: neither a version nor a gate.
    mistakes: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a server: its minor, and of some gates whether they are on. By default nothing but the newest minor."""

    minor: int = NEWEST
    # By the server, by its version, which has some locked, or as declared.
    gates: Mapping[str, bool] = {}
    # What the server itself has told or shown.
    found: Mapping[str, bool] = {}
    declared: Declared = Declared()

    @property
    def server(self) -> Server:
        """The server whose allocator a claim is judged by. What is not known of its gates is on: no claim is refused for a guess."""
        if self.minor == NEWEST and not self.gates:
            return EVERYTHING
        minor = _nearest(self.minor)
        return Server(minor, frozenset([gate for gate in known_gates(minor) if self.gates.get(gate, True)]))

    @property
    def likely(self) -> Server:
        """The server whose API drops fields: what is not known of its gates is as its version has it by default."""
        minor = _nearest(self.minor)
        known = known_gates(minor)
        return Server(minor, frozenset([gate for gate, stage in known.items() if self.gates.get(gate, stage.on)]))

    @property
    def guessed(self) -> dict[str, bool]:
        """The gates of which nothing is known, each as its version has it by default."""
        known = known_gates(_nearest(self.minor))
        return {gate: stage.on for gate, stage in sorted(known.items()) if gate not in self.gates}

    @property
    def assumed(self) -> dict[str, bool]:
        """The gates that are as they were declared, because the server told nothing of them."""
        named = _spread(_nearest(self.minor), self.declared.gates)
        return {gate: on for gate, on in sorted(self.gates.items()) if gate in named and gate not in self.found}

    @property
    def overruled(self) -> tuple[str, ...]:
        """What was declared, and is not so."""
        words: list[str] = []
        declared = self.declared
        if declared.minor not in {0, self.minor}:
            words.append(f"version 1.{declared.minor}: it is 1.{self.minor}")
        for gate, wanted in sorted(declared.gates.items()):
            on = self.gates.get(gate)
            if gate not in _MANY and on != wanted:
                is_so = "the server does not have it" if on is None else f"it is {_word(on=on)}"
                words.append(f"{gate}={_word(on=wanted)}: {is_so}")
        return tuple(words)

    def doubts(self) -> str:
        """Say what of this is a guess, or was declared and not found out; "" if the server told everything."""
        parts: list[str] = []
        if guessed := [f"{gate} ({'on' if on else 'off'} by default)" for gate, on in self.guessed.items()]:
            how = "counts as on where claims are judged, and by default for what is written"
            parts.append(f"not found out, so that it {how}: {', '.join(guessed)}")
        if assumed := [f"{gate}={_word(on=on)}" for gate, on in self.assumed.items()]:
            parts.append(f"as declared, and not found out: {', '.join(assumed)}")
        if self.declared.mistakes:
            parts.append(f"declared and not understood: {', '.join(self.declared.mistakes)}")
        if self.overruled:
            parts.append(f"declared otherwise (`kubernetes` of the configuration): {', '.join(self.overruled)}")
        return f"Kubernetes 1.{self.minor}: {'; '.join(parts)}" if parts else ""


def known_of(minor: int, found: Mapping[str, bool], declared: Declared = Declared()) -> KnownServer:  # noqa: B008  a value
    """Put together what is known of a server: what it tells goes before what was declared, and what its version has locked before both."""
    nearest = _nearest(minor)
    gates = _spread(nearest, declared.gates)
    # Gates are off if others were found off that they need: the server would not have started.
    off = {gate for gate, on in found.items() if not on}
    for gate, needs in _NEEDS.items() if nearest >= _CHECKED_SINCE else ():
        if not off.isdisjoint(needs):
            gates[gate] = False
    gates |= found
    for gate, stage in known_gates(nearest).items():
        if stage.locked:
            gates[gate] = stage.on
    return KnownServer(minor=minor, gates=gates, found=dict(found), declared=declared)


def _spread(minor: int, declared: Mapping[str, bool]) -> dict[str, bool]:
    """Say of each gate of a version what was declared of it, by its name or by its stage."""
    known = known_gates(minor)
    spread: dict[str, bool] = {}
    for word, maturity in _MANY.items():
        if word in declared:
            spread |= {gate: declared[word] for gate, stage in known.items() if stage.maturity == maturity}
    return spread | {gate: on for gate, on in declared.items() if gate in known}


def _nearest(minor: int) -> int:
    return min(max(minor, OLDEST), NEWEST)


def _word(*, on: bool) -> str:
    return str(on).lower()


def known_gates(minor: int) -> dict[str, GateStage]:
    """List the gates that a server of a minor knows, each as it is there."""
    reached = {gate: [stage for stage in stages if stage.since <= minor] for gate, stages in GATES.items()}
    return {gate: stages[-1] for gate, stages in reached.items() if stages}


def server_of(minor: int = NEWEST, changes: Mapping[str, bool] | None = None) -> Server:
    """Make a server of a minor with gates that differ from its defaults, as it would start; ServerError if it would not."""
    known = known_gates(minor)
    if not OLDEST <= minor <= NEWEST:
        raise ServerError(f"Kubernetes 1.{minor} is not known here", f"1.{OLDEST} to 1.{NEWEST} are")
    for gate, value in (changes or {}).items():
        if gate not in _MANY:
            _permit(gate, minor, known, wanted=value)
    on = {gate: stage.on for gate, stage in known.items()} | _spread(minor, changes or {})
    gates = frozenset([gate for gate, value in on.items() if value])
    for gate, needs in _NEEDS.items() if minor >= _CHECKED_SINCE else ():
        missing = [need for need in needs if need not in gates]
        if gate in gates and missing:
            raise ServerError(f"Kubernetes 1.{minor} does not start with {gate} on and {missing[0]} off")
    return Server(minor, gates)


def read_server(version: str = "", gates: str = "") -> Server:
    """Read what `--kubernetes` and `--feature-gates` say: `1.35`, and `GATE=true,GATE=false`."""
    return server_of(read_minor(version) if version else NEWEST, read_changes(gates))


def mistakes(version: str, gates: Mapping[str, bool]) -> Iterator[tuple[str, ServerError]]:
    """Say what no server is: of the version under "", of a gate under its name. Without a version any that is known will do."""
    minors = [*range(NEWEST, OLDEST - 1, -1)]
    try:
        if version:
            minors = [server_of(read_minor(version)).minor]
    except ServerError as error:
        yield "", error
    for gate, on in gates.items():
        wrong: list[ServerError] = []
        for minor in minors if gate not in _MANY else ():
            try:
                _permit(gate, minor, known_gates(minor), wanted=on)
            except ServerError as error:
                wrong.append(error)
        if wrong and len(wrong) == len(minors):
            yield gate, wrong[0]


def read_minor(version: str) -> int:
    """Read `1.35`, `v1.35.2`, or `35` as the minor that it names."""
    parts = version.strip().removeprefix("v").split(".")
    number = parts[0] if len(parts) == 1 else parts[1]
    if not (number.isascii() and number.isdigit() and len(number) < 4) or (len(parts) > 1 and parts[0] != "1"):
        raise ServerError(f"{version[:40]!r} is not a version of Kubernetes", f"write 1.{OLDEST} to 1.{NEWEST}")
    return int(number)


def read_changes(text: str) -> dict[str, bool]:
    """Read a list as the `--feature-gates` of a server takes it; a later value of a gate replaces an earlier one."""
    changes: dict[str, bool] = {}
    for piece in filter(None, map(str.strip, text.split(","))):
        gate, _, value = piece.partition("=")
        wanted = _WORDS.get(value.strip().lower())
        if wanted is None:
            raise ServerError(f"{piece[:80]!r} is not GATE=true or GATE=false")
        changes[gate.strip()] = wanted
    return changes


def _permit(gate: str, minor: int, known: Mapping[str, GateStage], *, wanted: bool) -> None:
    """Refuse what a server of this minor does not start with."""
    stage = known.get(gate)
    if stage is not None:
        if stage.locked and wanted != stage.on:
            raise ServerError(
                f"{gate} cannot be set to {str(wanted).lower()}: Kubernetes 1.{minor} has it locked to {str(stage.on).lower()}",
                "leave it out",
            )
        return
    later = GATES.get(gate)
    if later is not None:
        raise ServerError(
            f"Kubernetes 1.{minor} has no feature gate {gate}", f"1.{later[0].since} is the first that has"
        )
    near = difflib.get_close_matches(gate[:80], [*known, *_MANY], n=1, cutoff=0.7)
    names = ", ".join(sorted(known))
    hint = f"did you mean {near[0]}?" if near else f"leave out what is not about devices; known are {names}"
    raise ServerError(f"no feature gate {gate[:80]!r} about devices is known", hint)


# Every gate that changes something here is on, also those that no server of this minor has on by itself.
EVERYTHING: Final = Server(NEWEST, frozenset(GATES))
