"""Every code of doctor has a rule that declares its inputs. A dump without these inputs lists the code as not checked."""

import ast
import inspect
import re
import textwrap

import pytest

from analysis.doctor import RULES
from cluster import resources
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from dra.codes import CODES
from tests.cli.commands.faults import FAULTS, FLEET, audit_event, faults
from tests.cli.forbidden import forbidding
from tests.cli.installations import installation
from tests.cli.running import run, run_json
from tests.cli.test_doctor_components import remove_certificates, scaled_down, two_versions
from tests.loops import every


def codes_in(rule):
    """Return the codes in the source of a rule."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule.find)))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {text for text in texts if re.fullmatch(r"[DO]\d{3}", text)}


def test_every_doctor_code_belongs_to_a_rule():
    own_codes = {code for code in CODES if code.startswith("O")}
    shared_codes = {"D212", "D214", "D401", "D403", "S008", "S009"}  # `check` or `survey` reports these, too
    assert {code for rule in RULES for code in rule.codes.split()} == own_codes | shared_codes


@every("rule", RULES)
def test_a_rule_declares_the_codes_that_it_reports(rule):
    # Codes outside of a rule's source are in `_CODE_OF_REASON`, `find_incomplete` (D401, D403) `find_refused_pods` (O101)
    # `analysis.autoscalers` (S008, S009), `allocator.decisions` (O107, O115) and `webhook.placement` (D212).
    # A reason without a code has that of its rule. `find_missed` has O103.
    codes_in_source = {
        "reported_by_agents": set(),
        "incomplete_pools": {"O208"},
        "not_created": set(),
        "_is_impossible": set(),
        "_is_not_translated": {"O104"},
        **{name: set() for name in ("_names_no_template", "_names_no_claim", "_lacks_a_class")},
        "_is_not_placed": set(),
        "not_scaled_for": set(),
        "restarting": {"O117"},
    }
    by_default = set() if rule.codes in ("O116", "O117") else set(rule.codes.split())
    assert codes_in(rule) == codes_in_source.get(rule.find.__name__, by_default)


def storable_installation():
    """Return the objects of an installation that the embedded store supports."""
    storable_kinds = {resource.kind for resource in resources.ALL}
    return [obj for obj in installation() if obj["kind"] in storable_kinds and "apiVersion" in obj]


def findings_live_and_saved(objects, tmp_path, monkeypatch):
    """Return the findings about a cluster, the findings about its snapshot, and the whole answer about the snapshot."""
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded.holding(objects))
    file = tmp_path / "snapshot.json"
    assert run("snapshot", "--to", file).exit_code == 0
    (_, live_answer), (_, saved_answer) = run_json("doctor"), run_json("doctor", "-f", file)
    live_findings, saved_findings = (
        {(finding["code"], finding["object"]) for finding in answer["findings"]}
        for answer in (live_answer, saved_answer)
    )
    return live_findings, saved_findings, saved_answer


def assert_missing_codes_are_listed(live_findings, saved_findings, saved_answer):
    not_checked = {code for entry in saved_answer["notChecked"] for code in entry["codes"]}
    assert saved_findings - live_findings == set()
    assert {code for code, _ in live_findings - saved_findings} - not_checked == set()
    assert all(entry["inputs"] and entry["reason"] for entry in saved_answer["notChecked"])


@pytest.mark.parametrize("fault_code", FAULTS)
def test_a_snapshot_of_devices_lists_its_unchecked_codes(fault_code, tmp_path, monkeypatch):
    live_findings, saved_findings, saved_answer = findings_live_and_saved(
        [*FLEET, *faults()[fault_code][0]], tmp_path, monkeypatch
    )
    assert fault_code in {code for code, _ in live_findings}
    assert_missing_codes_are_listed(live_findings, saved_findings, saved_answer)


@pytest.mark.parametrize(
    ("change", "code"),
    [(list, "O012"), (scaled_down, "O009"), (two_versions, "O011"), (remove_certificates, "O008")],
    ids=["no change, so no leader", "scaled down", "two versions", "no certificates"],
)
def test_a_snapshot_of_an_installation_lists_its_unchecked_codes(change, code, tmp_path, monkeypatch):
    objects = storable_installation()
    change(objects)
    objects = [*FLEET, *objects, audit_event("DeviceInDoubt", "device x")]
    live_findings, saved_findings, saved_answer = findings_live_and_saved(objects, tmp_path, monkeypatch)
    assert {code, "O228"} <= {code for code, _ in live_findings}
    assert_missing_codes_are_listed(live_findings, saved_findings, saved_answer)
    assert "O228" in run("doctor", "-v", "-f", tmp_path / "snapshot.json").stdout


@pytest.mark.parametrize(
    ("kind", "codes"), [("Event", {"O101", "O228"}), ("ResourceSlice", {"D401", "O218"}), ("Lease", {"O020"})]
)
def test_a_forbidden_kind_is_listed_with_its_unchecked_codes(kind, codes, monkeypatch):
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: forbidding(kind).holding([*FLEET, *storable_installation()]))
    _, answer = run_json("doctor")
    assert [unread["kind"].partition(".")[0] for unread in answer["unread"]] == [f"{kind.lower()}s"]
    assert codes <= {code for entry in answer["notChecked"] if kind in entry["inputs"] for code in entry["codes"]}


def test_setup_that_may_not_be_read_is_listed_and_the_rest_is_judged(monkeypatch):
    monkeypatch.setattr(
        Kubernetes, "connect", lambda **_: forbidding("NodePool").holding([*FLEET, *faults()["S008"][0]])
    )
    _, answer = run_json("doctor")
    assert answer["unread"] == []
    assert "S008" in {finding["code"] for finding in answer["findings"]}
    [entry] = [entry for entry in answer["notChecked"] if "S008" in entry["codes"]]
    assert "nodepools" in entry["reason"]
