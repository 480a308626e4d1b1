"""The enabled feature gates of a Kubernetes version with declared and reported gates, and invalid combinations of gates."""

from pathlib import Path

import pytest

from dra import server as gates
from dra.errors import ServerError
from dra.server import (
    CURRENT,
    EVERYTHING,
    GATES,
    NEWEST,
    OLDEST,
    RELEASE,
    SUPPORTED,
    DeclaredServer,
    KnownServer,
    known_gates,
    known_of,
    mistakes,
    read_changes,
    read_minor,
    read_server,
    server_of,
)
from tests.loops import every

SHARES = "DRAConsumableCapacity"


def test_the_defaults_are_those_of_each_minor():
    is_enabled = {minor: server_of(minor).enabled for minor in (34, 35, 36, 37, 38)}
    assert [is_enabled[minor](gates.CAPACITY) for minor in is_enabled] == [False, False, True, True, True]
    assert [is_enabled[minor](gates.ALTERNATIVES) for minor in is_enabled] == [True] * 5
    assert [is_enabled[minor](gates.TAINT_RULES) for minor in is_enabled] == [False, False, False, True, True]
    assert [is_enabled[minor](gates.FRACTIONAL) for minor in is_enabled] == [False, False, False, False, True]
    assert not any(is_enabled[minor](gates.LISTS) for minor in is_enabled)
    assert read_server() == server_of(CURRENT) != EVERYTHING


@pytest.mark.parametrize("module", ["bridge", "e2e/binaries/kubernetes", "e2e/binaries/network", "tests/oracle"])
def test_the_go_modules_pin_the_newest_release(module):
    pins = (Path(__file__).parents[2] / module / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{RELEASE}\n" in pins


def test_a_list_of_gates_changes_the_defaults():
    assert read_server("1.35", f"{SHARES}=true").enabled(SHARES)
    assert not read_server("v1.36.2", f" {SHARES}=true, {SHARES}=False ,").enabled(SHARES)
    assert read_server("", "AllAlpha=true,DRADerivedAttributes=false").gates >= {gates.LISTS, gates.GROUPS}
    assert not read_server("", "AllAlpha=true,DRADerivedAttributes=false").enabled(gates.DERIVED)
    assert not read_server("1.36", "AllBeta=false").enabled(SHARES)
    assert str(read_server("1.36", f"{SHARES}=false")) == f"Kubernetes 1.36 with {SHARES}=false"


@every(
    ("version", "text", "words"),
    [
        (f"1.{OLDEST - 1}", "", f"choose one of {SUPPORTED}"),
        (f"1.{NEWEST + 1}", "", f"choose one of {SUPPORTED}"),
        ("2.36", "", "is not a Kubernetes version"),
        ("1.x", "", "is not a Kubernetes version"),
        ("1." + "9" * 5000, "", "is not a Kubernetes version"),
        ("", "DRAConsumableCapacity", "not GATE=true or GATE=false"),
        ("", "DRAConsumableCapacity=yes", "not GATE=true or GATE=false"),
        ("", "DRAConsumableCapacty=true", f"did you mean {SHARES}?"),
        ("", "ConsumableCapacity=true", f"did you mean {SHARES}?"),
        ("", "Nonsense=true", "leave out feature gates that do not concern devices"),
        ("1.36", "DRADerivedAttributes=true", "1.37 is the first that has it"),
        ("1.37", "DRAPrioritizedList=false", "has it locked to true"),
        ("1.36", "DRAAdminAccess=false", "has it locked to true"),
        ("1.37", "DRADeviceTaints=false", "does not start with DRADeviceTaintRules on and DRADeviceTaints off"),
        ("1.37", "DRAFractionalCapacityRange=true,DRAConsumableCapacity=false", "does not start with"),
        ("1.38", "DRAConsumableCapacity=false", "does not start with DRAFractionalCapacityRange on"),
        ("1.38", "DRADeviceTaints=false", "has it locked to true"),
        ("1.38", "DRADeviceTaintRules=false", "has it locked to true"),
        ("1.38", "DRAPartitionableDevices=false", "has it locked to true"),
        ("1.38", "DRADeviceBindingConditions=false", "has it locked to true"),
        ("1.38", "DynamicResourceAllocation=true", "1.37 is the last that has it"),
    ],
)
def test_an_unsupported_version_or_gate_is_refused_with_a_remedy(version, text, words):
    with pytest.raises(ServerError) as error:
        read_server(version, text)
    assert words in f"{error.value} {error.value.remedy}"
    assert len(str(error.value)) < 200


def test_a_locked_gate_accepts_its_locked_value():
    assert read_server("1.37", "DRAPrioritizedList=true") == read_server("1.37")
    assert not read_server("1.35", "DRAPrioritizedList=false").enabled(gates.ALTERNATIVES)


def test_versions_are_read_as_people_write_them():
    assert [read_minor(text) for text in ("1.35", "v1.35", "1.35.10", "35", " 1.35 ")] == [35] * 5
    assert read_changes("") == {}


def test_every_gate_has_its_stages_in_order():
    for stages in GATES.values():
        assert [stage.since for stage in stages] == sorted({stage.since for stage in stages})


def test_reported_gates_precede_declared_ones_and_version_defaults():
    server = known_of(36, {SHARES: False}, DeclaredServer(0, {SHARES: True, gates.COUNTERS: False}))
    assert not server.likely.enabled(SHARES)
    assert not server.likely.enabled(gates.COUNTERS)
    assert server.likely.enabled(gates.TAINTS)  # by default
    assert not server.likely.enabled(gates.LISTS)
    assert server.server.enabled(gates.LISTS)  # a guess must not refuse a claim
    assert server.likely.enabled(gates.ADMIN_ACCESS)
    assert server.assumed == {gates.COUNTERS: False}
    assert server.overruled == (f"{SHARES}=true: it is false",)
    assert {gates.LISTS, gates.TAINTS} <= server.guessed.keys()
    assert server.guessed.keys().isdisjoint({SHARES, gates.COUNTERS, gates.ADMIN_ACCESS})  # reported, declared, locked


def test_a_declared_stage_applies_to_all_its_unreported_gates():
    server = known_of(36, {SHARES: True}, DeclaredServer(36, {"AllBeta": False, gates.TAINTS: True}))
    assert not server.server.enabled(gates.COUNTERS)
    assert server.server.enabled(SHARES)
    assert server.server.enabled(gates.TAINTS)
    assert server.overruled == ()


def test_a_gate_is_off_if_its_dependency_is_off():
    server = known_of(37, {gates.TAINTS: False, SHARES: False}, DeclaredServer(0, {gates.TAINT_RULES: True}))
    assert not server.server.enabled(gates.TAINT_RULES)
    assert not server.server.enabled(gates.FRACTIONAL)
    assert server.overruled == (f"{gates.TAINT_RULES}=true: it is false",)
    assert known_of(34, {gates.COUNTERS: False}).guessed.keys() >= {gates.TAINTS}


def test_an_impossible_gate_declaration_is_overruled_and_reported():
    server = known_of(35, {}, DeclaredServer(37, {gates.DERIVED: True, gates.CLAIMS: False}, ("no gate X",)))
    assert not server.server.enabled(gates.DERIVED)
    assert server.server.enabled(gates.CLAIMS)
    doubts = server.doubts()
    assert "version 1.37: it is 1.35" in doubts
    assert f"{gates.DERIVED}=true: the server does not have it" in doubts
    assert f"{gates.CLAIMS}=false: it is true" in doubts
    assert "declarations not understood: no gate X" in doubts
    assert f"{SHARES} (off by default)" in doubts


def test_a_server_reporting_all_gates_leaves_no_doubt():
    assert known_of(NEWEST, {gate: stage.on for gate, stage in known_gates(NEWEST).items()}).doubts() == ""
    assert known_of(CURRENT, {}).server == EVERYTHING == KnownServer().server
    assert known_of(99, {}).server == known_of(NEWEST, {}).server
    assert known_of(0, {}).likely == server_of(OLDEST)


def test_a_gate_unknown_to_the_server_is_reported_by_name():
    errors = dict(mistakes("", {"DRADeviceTaint": True, "AllBeta": False, gates.TAINTS: False, gates.DERIVED: True}))
    assert list(errors) == ["DRADeviceTaint"]
    assert errors["DRADeviceTaint"].remedy == f"did you mean {gates.TAINTS}?"
    assert list(dict(mistakes("1.36", {gates.DERIVED: True, gates.TAINTS: False}))) == [gates.DERIVED]
    assert list(dict(mistakes("1.63", {gates.DERIVED: True}))) == [""]
    assert list(dict(mistakes("", {gates.ALTERNATIVES: False}))) == []  # the gate is not locked in 1.36
    assert list(dict(mistakes("1.37", {gates.ALTERNATIVES: False}))) == [gates.ALTERNATIVES]
