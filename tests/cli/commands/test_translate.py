"""`drawbridge translate`: its output, its exit code, and the options that decide about a translation."""

import copy
import json
import re
from pathlib import Path

import jsonpatch
import pytest

from cluster import manifests
from dra.objects import ResourceClaimTemplate
from dra.wire import convert
from tests.cli.commands.translations import CONFIG_MAP, SHARE_POD, complete_pod, yaml_of
from tests.cli.running import run
from tests.webhook.pods import EXAMPLES, configured, pod, state_of_files
from webhook.admission import decide_object
from webhook.claims.template_lifecycle import is_ours

FLEET = ["--inventory", str(EXAMPLES / "fleet")]
CONFIG = ["--config", str(EXAMPLES / "configuration.yaml")]
STATE = state_of_files(manifests.read([EXAMPLES / "fleet"]), configured())


def kinds(output: str) -> list[str]:
    return [document.object["kind"] for document in manifests.parse(output)]


def test_templates_precede_their_first_user_once_per_namespace():
    other = complete_pod(pod({"nvidia.com/gpumem": 1000}), namespace="elsewhere")
    same = complete_pod(pod({"nvidia.com/gpumem": 1000}), name="again")
    result = run("translate", "-f", "-", stdin=yaml_of(CONFIG_MAP, SHARE_POD, same, other, CONFIG_MAP))
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
    assert documents[0] == documents[-1] == CONFIG_MAP


def test_translated_output_is_not_translated_again():
    once = run("translate", "-f", "-", stdin=yaml_of(CONFIG_MAP, SHARE_POD)).stdout
    again = run("translate", "-f", "-", stdin=once)
    assert again.stdout == once
    assert again.exit_code == 0


def test_a_refused_object_passes_through_and_the_exit_is_1():
    wrong = complete_pod(pod({"nvidia.com/gpumem": 1.5}))
    result = run("translate", "-f", "-", stdin=yaml_of(wrong, SHARE_POD))
    assert result.exit_code == 1
    assert manifests.parse(result.stdout)[0].object == wrong
    assert "-:1: error: Pod/n/p: container c0: nvidia.com/gpumem: 1.5" in result.stderr
    assert kinds(result.stdout)[1:] == ["ResourceClaimTemplate", "Pod"]


def test_json_is_one_document_with_items_and_decisions():
    result = run("translate", "-f", "-", "-o", "json", stdin=yaml_of(SHARE_POD))
    answer = json.loads(result.stdout)
    assert [item["kind"] for item in answer["items"]] == ["ResourceClaimTemplate", "Pod"]
    assert set(answer["decisions"][0]) == {"object", "container", "dialect", "key", "outcome", "detail"}
    assert {decision["outcome"] for decision in answer["decisions"]} <= {"translated", "approximated"}


def unnamed(obj: dict) -> dict:
    """Return the object with only the content hash of each template name, because the rest of the name depends on the file."""
    return json.loads(re.sub(r'(?<=TemplateName": ")[a-z0-9-]+-([0-9a-f]{16})[0-9a-f]*', r"\1", json.dumps(obj)))


def test_printed_templates_use_no_name_reserved_for_the_webhook():
    [template, obj] = manifests.parse(run("translate", "-f", "-", stdin=yaml_of(SHARE_POD)).stdout)
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
    patch = json.loads(run("translate", "-f", "-", "-o", "patch", stdin=yaml_of(CONFIG_MAP, SHARE_POD)).stdout)
    (change,) = patch
    whole = [document.object for document in manifests.parse(run("translate", "-f", "-", stdin=yaml_of(SHARE_POD)).stdout)]
    assert change["object"] == "Pod/n/p"
    assert [*change["templates"], jsonpatch.apply_patch(SHARE_POD, change["patch"])] == whole


def test_a_diff_shows_removed_and_added_lines():
    lines = run("translate", "-f", "-", "-o", "diff", stdin=yaml_of(CONFIG_MAP, SHARE_POD)).stdout.splitlines()
    assert lines[:2] == ["--- a/Pod/n/p", "+++ b/Pod/n/p"]
    assert any(line.startswith("-") and "nvidia.com/gpumem" in line for line in lines)
    assert any(line.startswith("+") and "drawbridge-c0-gpu" in line for line in lines)
    assert run("translate", "-f", "-", "-o", "diff", stdin=yaml_of(CONFIG_MAP)).stdout == ""


def test_a_quota_in_the_input_or_the_inventory_counts(tmp_path):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": {"requests.nvidia.com/gpumem": "1"}},
    }
    assert "a ResourceQuota limits" in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, quota)).stderr
    elsewhere = copy.deepcopy(quota)
    elsewhere["metadata"]["namespace"] = "other"
    assert "a ResourceQuota limits" not in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, elsewhere)).stderr


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
    arguments = ("translate", "-f", "-", "--config", str(configuration))
    without = run(*arguments, stdin=yaml_of(bare))
    assert "resourceClaims" not in without.stdout
    made = run(*arguments, stdin=yaml_of(bare, limit_range)).stdout
    assert "dra.cpu/cpu: '2'" in made
    assert "resources:\n      claims:\n      - name: drawbridge-main-cpus\n" in made
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(yaml_of(limit_range))
    assert "drawbridge-main-cpus" in run(*arguments, "--inventory", str(inventory), stdin=yaml_of(bare)).stdout


def test_a_limit_range_in_the_input_counts():
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "n"},
        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpumem": "8000"}}]},
    }
    assert "a LimitRange bounds it" in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range)).stderr
    limit_range["metadata"]["namespace"] = "other"
    assert "a LimitRange" not in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range)).stderr
    limit_range["spec"]["limits"] = 3
    wrong = run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range))
    assert wrong.exit_code == 2
    assert "/spec/limits" in wrong.stderr


def test_the_server_version_decides_which_requests_are_allowed():
    result = run("translate", "-f", "-", "--kubernetes", "1.35", stdin=yaml_of(SHARE_POD))
    assert kinds(result.stdout) == ["Pod"]
    assert "DRAConsumableCapacity" in result.stderr
    assert run("translate", "-f", "-", "--kubernetes", "two", stdin=yaml_of(SHARE_POD)).exit_code == 2


def test_an_invalid_configuration_is_reported_with_every_error(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: on\ncanari: 3\n")
    result = run("translate", "-f", "-", "--config", str(path), "-o", "json", stdin=yaml_of(SHARE_POD))
    assert result.exit_code == 2
    errors = json.loads(result.stdout)["errors"]
    assert {(error["pointer"], error["line"]) for error in errors} == {("/mode", 3), ("/canari", 4)}


@pytest.mark.parametrize("count", [0, 2])
def test_a_configuration_file_holds_exactly_one_configuration(tmp_path, count):
    path = tmp_path / "c.yaml"
    path.write_text(yaml_of(*[{"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}] * count))
    assert run("translate", "-f", "-", "--config", str(path), stdin=yaml_of(SHARE_POD)).exit_code == 2


def test_unknown_kinds_are_translated_with_the_option():
    group = {
        "apiVersion": "example.com/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "n"},
        "spec": {"worker": {"spec": SHARE_POD["spec"]}},
    }
    assert kinds(run("translate", "-f", "-", stdin=yaml_of(group)).stdout) == ["RayCluster"]
    assert kinds(run("translate", "-f", "-", "--all-kinds", stdin=yaml_of(group)).stdout) == [
        "ResourceClaimTemplate",
        "RayCluster",
    ]


def test_translate_without_files_is_refused():
    nothing = run("translate", "-o", "json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["items"]) == (2, [])


def test_the_namespace_option_applies_to_objects_without_a_namespace():
    off = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "off", "labels": {"drawbridge.dev/mode": "off"}},
    }
    nowhere, elsewhere = complete_pod(SHARE_POD, name="a", namespace=""), complete_pod(SHARE_POD, name="b", namespace="other")
    given = yaml_of(nowhere, elsewhere, off)
    assert kinds(run("translate", "-f", "-", *CONFIG, stdin=given).stdout).count("ResourceClaimTemplate") == 2
    result = run("translate", "-f", "-", *CONFIG, "-n", "team", stdin=given)
    assert kinds(result.stdout) == ["ResourceClaimTemplate", "Pod", "Pod", "Namespace"]
    assert [document.object["metadata"].get("namespace") for document in manifests.parse(result.stdout)] == [
        None,
        "",
        "other",
        None,
    ]
    output = run("translate", "-f", "-", *CONFIG, "-n", "off", "-o", "report", stdin=given).stdout
    assert "Pod/off/a" in output
    assert "3 objects, 0 rewritten: 1 left, 2 without a legacy request" in output
    assert run("translate", "-f", "-", "-n", "off", "-A", stdin=given).exit_code == 2
