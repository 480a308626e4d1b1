"""`drawbridge translate` and `drawbridge dialects`: what stands on stdout, on stderr, and in the exit."""

import copy
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonpatch
import pytest
from click.testing import CliRunner

from cli.main import main
from cluster import manifests
from dra.objects import ResourceClaimTemplate
from dra.wire import convert
from tests.cli.running import run as drawbridge
from tests.webhook.pods import EXAMPLES, became, configured, pod, state_of_files
from webhook.admission import decide_object
from webhook.claims.template_lifecycle import is_ours

FLEET = ["--inventory", str(EXAMPLES / "fleet")]
CONFIG = ["--config", str(EXAMPLES / "configuration.yaml")]
STATE = state_of_files(manifests.read([EXAMPLES / "fleet"]), configured())


def run(*args: str, stdin: str | None = None):
    return CliRunner().invoke(main, list(args), input=stdin)


def text(*objects: dict) -> str:
    return manifests.dump(list(objects))


def complete(value: dict, **metadata) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", **value, "metadata": {**value["metadata"], **metadata}}


SHARE = complete(pod({"nvidia.com/gpumem": 1000}))
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"on": "yes"}}


def kinds(output: str) -> list[str]:
    return [document.object["kind"] for document in manifests.parse(output)]


def test_templates_stand_before_their_first_user_once_in_each_namespace():
    other = complete(pod({"nvidia.com/gpumem": 1000}), namespace="elsewhere")
    same = complete(pod({"nvidia.com/gpumem": 1000}), name="again")
    result = run("translate", "-f", "-", stdin=text(MAP, SHARE, same, other, MAP))
    assert result.exit_code == 0
    assert kinds(result.stdout) == [
        "ConfigMap",
        "ResourceClaimTemplate",
        "Pod",
        "Pod",
        "ResourceClaimTemplate",
        "Pod",
        "ConfigMap",
    ]
    documents = [document.object for document in manifests.parse(result.stdout)]
    assert [
        document["metadata"]["namespace"] for document in documents if document["kind"] == "ResourceClaimTemplate"
    ] == [
        "n",
        "elsewhere",
    ]
    assert documents[0] == documents[-1] == MAP


def test_its_own_output_passes_through():
    once = run("translate", "-f", "-", stdin=text(MAP, SHARE)).stdout
    again = run("translate", "-f", "-", stdin=once)
    assert again.stdout == once
    assert again.exit_code == 0


def test_a_refused_object_passes_through_and_the_exit_is_1():
    wrong = complete(pod({"nvidia.com/gpumem": 1.5}))
    result = run("translate", "-f", "-", stdin=text(wrong, SHARE))
    assert result.exit_code == 1
    assert manifests.parse(result.stdout)[0].object == wrong
    assert "-:1: error: Pod/n/p: container c0: nvidia.com/gpumem: 1.5" in result.stderr
    assert kinds(result.stdout)[1:] == ["ResourceClaimTemplate", "Pod"]


def test_json_is_one_document_with_items_and_decisions():
    result = run("translate", "-f", "-", "-o", "json", stdin=text(SHARE))
    answer = json.loads(result.stdout)
    assert [item["kind"] for item in answer["items"]] == ["ResourceClaimTemplate", "Pod"]
    assert set(answer["decisions"][0]) == {"object", "container", "dialect", "key", "outcome", "detail"}
    assert {decision["outcome"] for decision in answer["decisions"]} <= {"translated", "approximated"}


def unnamed(obj: dict) -> dict:
    """The object with its templates under the hash of their content alone: files give them other names."""
    return json.loads(re.sub(r'(?<=TemplateName": ")[a-z0-9-]+-([0-9a-f]{16})[0-9a-f]*', r"\1", json.dumps(obj)))


def test_applied_templates_have_no_name_or_label_reserved_for_the_webhook():
    [template, obj] = manifests.parse(run("translate", "-f", "-", stdin=text(SHARE)).stdout)
    stored = convert(template.object, ResourceClaimTemplate)
    [entry] = obj.object["spec"]["resourceClaims"]
    assert stored.metadata.name == entry["resourceClaimTemplateName"]
    policy = (Path(__file__).parents[3] / "manifests/base/policies.yaml").read_text()
    reserved = re.search(r"matches\('(.*)'\)", policy)[1]
    assert re.match(reserved, "drawbridge-" + 16 * "0")
    assert not re.match(reserved, stored.metadata.name)
    assert not is_ours(stored)


def test_the_command_and_the_function_agree():
    for document in manifests.read([EXAMPLES / "pods"]):
        if document.object["kind"] != "Pod":
            continue
        done = decide_object(document.object, STATE)
        expected = jsonpatch.apply_patch(copy.deepcopy(document.object), list(done.operations))
        result = run("translate", "-f", document.file, *FLEET, "-o", "json")
        assert unnamed(json.loads(result.stdout)["items"][-1]) == unnamed(expected)
        assert result.exit_code == (1 if done.refusals else 0)


def test_a_patch_turns_the_input_into_the_output():
    patch = json.loads(run("translate", "-f", "-", "-o", "patch", stdin=text(MAP, SHARE)).stdout)
    (change,) = patch
    whole = [document.object for document in manifests.parse(run("translate", "-f", "-", stdin=text(SHARE)).stdout)]
    assert change["object"] == "Pod/n/p"
    assert [*change["templates"], jsonpatch.apply_patch(SHARE, change["patch"])] == whole


def test_a_diff_shows_what_goes_and_what_comes():
    lines = run("translate", "-f", "-", "-o", "diff", stdin=text(MAP, SHARE)).stdout.splitlines()
    assert lines[:2] == ["--- a/Pod/n/p", "+++ b/Pod/n/p"]
    assert any(line.startswith("-") and "nvidia.com/gpumem" in line for line in lines)
    assert any(line.startswith("+") and "drawbridge-c0-gpu" in line for line in lines)
    assert run("translate", "-f", "-", "-o", "diff", stdin=text(MAP)).stdout == ""


def test_a_report_counts_what_became_of_everything():
    wrong, left = complete(pod({"nvidia.com/gpumem": 1.5})), complete(pod({"nvidia.com/gpu.shared": 1}))
    result = run("translate", "-f", "-", "-o", "report", stdin=text(MAP, SHARE, wrong, left, SHARE))
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last == "5 objects, 2 rewritten: 2 approximated, 1 left, 1 refused, 1 without a legacy request"


def test_the_report_calls_no_key_of_a_refused_object_translated():
    """The API server refuses a pod with an unnamed container, so the key for GPUs stays."""
    asked = complete(pod({"nvidia.com/gpumem": 1000}))
    del asked["metadata"]["name"]
    output = run("translate", "-f", "-", "-o", "report", stdin=text(asked)).stdout
    assert [line.split()[0] for line in output.splitlines()[1:] if line] == ["left", "left", "refused", "1"]
    assert "the object is refused; otherwise it would be translated: 1000 MiB" in output


def test_a_quota_in_the_input_or_the_inventory_counts(tmp_path):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": {"requests.nvidia.com/gpumem": "1"}},
    }
    assert "a ResourceQuota limits" in run("translate", "-f", "-", stdin=text(SHARE, quota)).stderr
    elsewhere = copy.deepcopy(quota)
    elsewhere["metadata"]["namespace"] = "other"
    assert "a ResourceQuota limits" not in run("translate", "-f", "-", stdin=text(SHARE, elsewhere)).stderr


def test_limit_range_values_decide_the_translation_and_are_not_printed(tmp_path):
    configuration = tmp_path / "drawbridge.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    configuration.write_text(f"{head}cpuClaims: {{namespaces: {{'n': translate}}}}\n")
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}  # fmt: skip
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "n"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}}]},
    }
    asked = ("translate", "-f", "-", "--config", str(configuration))
    without = run(*asked, stdin=text(bare))
    assert "resourceClaims" not in without.stdout
    made = run(*asked, stdin=text(bare, limit_range)).stdout
    assert "dra.cpu/cpu: '2'" in made
    assert "resources:\n      claims:\n      - name: drawbridge-main-cpus\n" in made
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(text(limit_range))
    assert "drawbridge-main-cpus" in run(*asked, "--inventory", str(inventory), stdin=text(bare)).stdout


def test_a_limit_range_in_the_input_counts():
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "n"},
        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpumem": "8000"}}]},
    }
    assert "a LimitRange bounds it" in run("translate", "-f", "-", stdin=text(SHARE, limit_range)).stderr
    limit_range["metadata"]["namespace"] = "other"
    assert "a LimitRange" not in run("translate", "-f", "-", stdin=text(SHARE, limit_range)).stderr
    limit_range["spec"]["limits"] = 3
    wrong = run("translate", "-f", "-", stdin=text(SHARE, limit_range))
    assert wrong.exit_code == 2
    assert "/spec/limits" in wrong.stderr


def test_the_version_decides_what_may_be_asked():
    result = run("translate", "-f", "-", "--kubernetes", "1.35", stdin=text(SHARE))
    assert kinds(result.stdout) == ["Pod"]
    assert "DRAConsumableCapacity" in result.stderr
    assert run("translate", "-f", "-", "--kubernetes", "two", stdin=text(SHARE)).exit_code == 2


def test_a_bad_configuration_is_broken_input_with_every_mistake(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: on\ncanari: 3\n")
    result = run("translate", "-f", "-", "--config", str(path), "-o", "json", stdin=text(SHARE))
    assert result.exit_code == 2
    errors = json.loads(result.stdout)["errors"]
    assert {(error["pointer"], error["line"]) for error in errors} == {("/mode", 3), ("/canari", 4)}


@pytest.mark.parametrize("count", [0, 2])
def test_a_configuration_file_holds_one(tmp_path, count):
    path = tmp_path / "c.yaml"
    path.write_text(text(*[{"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}] * count))
    assert run("translate", "-f", "-", "--config", str(path), stdin=text(SHARE)).exit_code == 2


def test_unknown_kinds_are_looked_into_when_asked():
    group = {
        "apiVersion": "example.com/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "n"},
        "spec": {"worker": {"spec": SHARE["spec"]}},
    }
    assert kinds(run("translate", "-f", "-", stdin=text(group)).stdout) == ["RayCluster"]
    assert kinds(run("translate", "-f", "-", "--all-kinds", stdin=text(group)).stdout) == [
        "ResourceClaimTemplate",
        "RayCluster",
    ]


def test_every_key_of_every_dialect_is_listed():
    answer = json.loads(run("dialects", "-o", "json").stdout)
    assert [dialect["name"] for dialect in answer["dialects"]] == [dialect.name for dialect in configured().dialects]
    listed = run("dialects").stdout
    for dialect in answer["dialects"]:
        for row in dialect["keys"]:
            assert {"name", "meaning", "unit", "outcome", "place"} <= set(row)
            assert row["name"] in listed


def test_one_dialect_can_be_listed_and_an_unknown_one_is_an_error():
    assert "koordinator" not in run("dialects", "hami").stdout
    assert run("dialects", "klingon").exit_code == 2


def test_a_listed_table_is_what_a_configuration_takes():
    (document,) = manifests.parse(run("dialects", "hami", "-o", "yaml").stdout)
    (table,) = document.object["dialects"]
    keys = [row for row in table["keys"] if row["name"] == "nvidia.com/gpumem"]
    own = {
        "name": "copy",
        "title": "t",
        "target": table["target"],
        "keys": [{**row, "name": "our.org/mem"} for row in keys],
    }
    assert became(pod({"our.org/mem": 5}), dialects=[own]).changed


def test_a_refusal_in_the_report_says_what_helps_and_its_code():
    asked = complete(pod({"nvidia.com/gpumem": "8Gi"}))
    output = run("translate", "-f", "-", "-o", "report", stdin=text(asked)).stdout
    assert "8Gi is out of range (the number counts MiB: write 8192) [R002]" in " ".join(output.split())


TAINTED = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {type: {string: gpu}}
    taints: [{key: example.com/broken, effect: NoSchedule}]
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", pods: "10"}}
"""


def test_the_report_shows_that_no_node_can_serve_a_pod_now(tmp_path):
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TAINTED)
    asked = text(complete(pod({"nvidia.com/gpu": 1})))
    output = run("translate", "-f", "-", "--inventory", str(fleet), "-o", "report", stdin=asked).stdout
    [warning] = [line for line in output.splitlines() if line.startswith("  warning ")]
    assert "no node can serve this pod now" in warning
    assert "example.com/broken" in warning


STRANGE = """apiVersion: v1
kind: Pod
metadata: {name: half}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0.5}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: rough}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec: {nodeSelector: {nvidia.com/gpu.present: "true"}, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}
"""
CODES = [
    ("R001", "error", 4),
    ("M001", "warning", 9),
    ("D212", "warning", 14),
    ("D222", "warning", 14),
]


def hosted(tmp_path, form):
    file = tmp_path / "pods.yaml"
    file.write_text(STRANGE)
    result = drawbridge("translate", "-f", file, "--inventory", EXAMPLES / "fleet", "-o", form)
    assert result.exit_code == 1
    return file, result.stdout


def test_a_code_host_is_told_what_becomes_of_requests_and_where_they_stand(tmp_path):
    file, output = hosted(tmp_path, "sarif")
    [answer] = json.loads(output)["runs"]
    places = [
        (result["ruleId"], result["level"], result["locations"][0]["physicalLocation"]["region"]["startLine"])
        for result in answer["results"]
    ]
    assert places == CODES
    assert [rule["id"] for rule in answer["tool"]["driver"]["rules"]] == ["D212", "D222", "M001", "R001"]
    _, output = hosted(tmp_path, "github")
    lines = output.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", *["::warning"] * 3]
    assert all(f"file={file},line=" in line for line in lines)


def test_a_test_report_has_a_case_for_each_object(tmp_path):
    _, output = hosted(tmp_path, "junit")
    [suite] = ET.fromstring(output)
    assert suite.attrib == {"name": "drawbridge translate", "tests": "3", "failures": "1"}
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["Pod/default/half"]


def test_translate_without_files_is_refused():
    nothing = drawbridge("translate", "-o", "json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["items"]) == (2, [])


@pytest.mark.parametrize("present", [[], [{"key": "own", "operator": "Exists"}]])
def test_a_report_names_the_tolerations_that_are_added(present):
    """A pod has them by then, from the API server; the pods of a workload get none any more where its template has no key."""

    def report_with(tolerations):
        spec = {**copy.deepcopy(SHARE["spec"]), "tolerations": tolerations}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
        return run("translate", "-f", "-", "-o", "report", stdin=text(job)).stdout

    assert "  toleration    nvidia.com/gpumem:NoSchedule  added" in report_with(present)
    assert "own" not in report_with(present)
    tolerated = {"key": "nvidia.com/gpumem", "operator": "Exists", "effect": "NoSchedule"}
    assert "translated" in report_with([tolerated])
    assert "toleration" not in report_with([tolerated])


def test_objects_without_a_namespace_are_in_the_one_that_n_names_and_others_stay_as_they_are():
    off = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "off", "labels": {"drawbridge.dev/mode": "off"}},
    }
    nowhere, elsewhere = complete(SHARE, name="a", namespace=""), complete(SHARE, name="b", namespace="other")
    given = text(nowhere, elsewhere, off)
    assert kinds(run("translate", "-f", "-", *CONFIG, stdin=given).stdout).count("ResourceClaimTemplate") == 2
    there = run("translate", "-f", "-", *CONFIG, "-n", "team", stdin=given)
    assert kinds(there.stdout) == ["ResourceClaimTemplate", "Pod", "Pod", "Namespace"]
    assert [document.object["metadata"].get("namespace") for document in manifests.parse(there.stdout)] == [
        None,
        "",
        "other",
        None,
    ]
    output = run("translate", "-f", "-", *CONFIG, "-n", "off", "-o", "report", stdin=given).stdout
    assert "Pod/off/a" in output
    assert "3 objects, 0 rewritten: 1 left, 2 without a legacy request" in output
    assert run("translate", "-f", "-", "-n", "off", "-A", stdin=given).exit_code == 2


@pytest.mark.parametrize(
    ("resources", "counted"),
    [
        ("", "rewritten: 1 without a legacy request"),
        (", resources: {limits: {nvidia.com/pgpu: 1}}", "rewritten: 1 left, 0 without"),
    ],
)
def test_a_pod_that_only_selects_nodes_of_a_vendor_is_not_counted_as_left(resources, counted, tmp_path):
    """As the DaemonSets of NVIDIA's GPU operator do."""
    text = f"""
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: dcgm}}
spec:
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      nodeSelector: {{nvidia.com/gpu.deploy.dcgm: "true"}}
      containers: [{{name: c, image: dcgm{resources}}}]
"""
    (tmp_path / "set.yaml").write_text(text)
    done = run("translate", "-o", "report", "-f", str(tmp_path / "set.yaml"))
    assert "nvidia.com/gpu.deploy.dcgm  stays where it is" in done.stdout
    assert counted in done.stdout
