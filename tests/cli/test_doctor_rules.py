"""The table of doctor's rules: every finding has a rule, which says what it needs, and a dump without that says so."""

import ast
import inspect
import re
import textwrap

import pytest

from analysis.doctor import RULES
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.kubernetes import Kubernetes
from dra.codes import CODES
from tests.cli.commands.test_doctor import FLEET, ILLS, audit_event
from tests.cli.running import run, run_json
from tests.cli.test_doctor_components import installation


def codes_in(rule):
    """The codes that the source of a rule has."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule.find)))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {text for text in texts if re.fullmatch(r"[DO]\d{3}", text)}


def test_every_code_of_doctor_is_that_of_a_rule():
    of_doctor = {code for code in CODES if code.startswith("O")}
    shared = {"D214", "D401", "D403"}  # check finds them, too
    assert {code for rule in RULES for code in rule.codes.split()} == of_doctor | shared


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.find.__name__)
def test_a_rule_names_the_codes_that_it_makes(rule):
    # What agents report has the code of its reason, an incomplete pool that of `find_incomplete`, and O101 is found for `explain` as well.
    others = {"reported_by_agents": set(), "incomplete_pools": {"O208"}, "not_made": set()}
    assert codes_in(rule) == others.get(rule.find.__name__, set(rule.codes.split()))


def installed():
    """The objects of an installation that the embedded store knows."""
    known = {resource.kind for resource in resources.ALL}
    return [obj for obj in installation() if obj["kind"] in known and "apiVersion" in obj]


def live_and_saved(objects, tmp_path, monkeypatch):
    """What doctor finds in a cluster and in a snapshot of it, and the answer about the snapshot."""
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded.holding(objects))
    file = tmp_path / "snapshot.json"
    assert run("snapshot", "--to", file).exit_code == 0
    (_, live), (_, saved) = run_json("doctor"), run_json("doctor", "-f", file)
    of_cluster, of_file = (
        {(finding["code"], finding["object"]) for finding in answer["findings"]} for answer in (live, saved)
    )
    return of_cluster, of_file, saved


def assert_missing_is_named(of_cluster, of_file, saved):
    not_checked = {code for entry in saved["notChecked"] for code in entry["codes"]}
    assert of_file - of_cluster == set()
    assert {code for code, _ in of_cluster - of_file} - not_checked == set()
    assert all(entry["inputs"] and entry["reason"] for entry in saved["notChecked"])


@pytest.mark.parametrize("ill", ILLS)
def test_a_snapshot_of_devices_names_the_findings_that_it_cannot_show(ill, tmp_path, monkeypatch):
    both = live_and_saved([*FLEET, *ILLS[ill][0]], tmp_path, monkeypatch)
    assert ill in {code for code, _ in both[0]}
    assert_missing_is_named(*both)


def scaled_down(objects):
    next(obj for obj in objects if obj["metadata"]["name"] == "drawbridge-webhook" and obj["kind"] == "Deployment")["spec"]["replicas"] = 0  # fmt: skip


def of_two_versions(objects):
    [container] = next(obj for obj in objects if obj["metadata"]["name"] == "drawbridge-controller" and obj["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]  # fmt: skip
    container["image"] = "drawbridge:0"


def not_ready(objects):
    next(obj for obj in objects if obj["metadata"]["name"] == "drawbridge-webhook" and obj["kind"] == "Deployment")["status"]["readyReplicas"] = 0  # fmt: skip


def without_bundle(objects):
    for obj in objects:
        for hook in obj.get("webhooks", ()):
            hook["clientConfig"]["caBundle"] = ""


@pytest.mark.parametrize(
    ("change", "code"),
    [(list, "O012"), (scaled_down, "O009"), (of_two_versions, "O011"), (not_ready, "O009"), (without_bundle, "O008")],
    ids=["no leader", "scaled down", "two versions", "not ready", "no bundle"],
)
def test_a_snapshot_of_an_installation_names_the_findings_that_it_cannot_show(change, code, tmp_path, monkeypatch):
    objects = installed()
    change(objects)
    both = live_and_saved([*FLEET, *objects, audit_event("DeviceInDoubt", "device x")], tmp_path, monkeypatch)
    assert {code, "O228"} <= {code for code, _ in both[0]}
    assert_missing_is_named(*both)
    assert "O228" in run("doctor", "-f", tmp_path / "snapshot.json").stdout


@pytest.mark.parametrize(
    ("kind", "codes"), [("Event", {"O101", "O228"}), ("ResourceSlice", {"D401", "O218"}), ("Lease", {"O020"})]
)
def test_a_kind_that_may_not_be_listed_is_named_with_its_findings(kind, codes, monkeypatch):
    class Closed(Embedded):
        async def list(self, resource, *args, **kwargs):
            if resource.kind == kind:
                raise Forbidden("no")
            return await super().list(resource, *args, **kwargs)

    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Closed.holding([*FLEET, *installed()]))
    _, answer = run_json("doctor")
    assert [missed["kind"].partition(".")[0] for missed in answer["unread"]] == [f"{kind.lower()}s"]
    assert codes <= {code for entry in answer["notChecked"] if kind in entry["inputs"] for code in entry["codes"]}
