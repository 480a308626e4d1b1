"""`drawbridge translate`: its output, its exit code, and the options that decide about a translation."""

import copy
import json
import re
from pathlib import Path

import jsonpatch

from cluster import manifests
from dra.objects import ResourceClaimTemplate
from dra.wire import convert
from tests.cli.commands.translations import CONFIG_MAP, SHARE_POD, complete_pod, yaml_of
from tests.cli.running import run
from tests.objects import obj
from tests.webhook.pods import EXAMPLES, configured, pod, state_of_files
from webhook.admission import decide_object
from webhook.claims.template_lifecycle import is_ours

FLEET_OPTIONS = ["--inventory", str(EXAMPLES / "fleet")]
CONFIGURATION_OPTIONS = ["--config", str(EXAMPLES / "configuration.yaml")]
STATE = state_of_files(manifests.read([EXAMPLES / "fleet"]), configured())


def kinds_in(output: str) -> list[str]:
    return [document.object["kind"] for document in manifests.parse(output)]


def test_a_template_precedes_its_first_pod_in_each_namespace():
    pod_elsewhere = complete_pod(pod({"nvidia.com/gpumem": 1000}), namespace="elsewhere")
    second_pod = complete_pod(pod({"nvidia.com/gpumem": 1000}), name="again")
    result = run("translate", "-f", "-", stdin=yaml_of(CONFIG_MAP, SHARE_POD, second_pod, pod_elsewhere, CONFIG_MAP))
    assert result.exit_code == 0
    assert kinds_in(result.stdout) == [
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


def test_a_refused_object_is_printed_unchanged_and_exits_with_1():
    refused_pod = complete_pod(pod({"nvidia.com/gpumem": 1.5}))
    result = run("translate", "-f", "-", stdin=yaml_of(refused_pod, SHARE_POD))
    assert result.exit_code == 1
    assert manifests.parse(result.stdout)[0].object == refused_pod
    assert "-:1: error: Pod/n/p: container c0: nvidia.com/gpumem: 1.5" in result.stderr
    assert kinds_in(result.stdout)[1:] == ["ResourceClaimTemplate", "Pod"]


def test_json_is_one_document_with_items_and_decisions():
    result = run("translate", "-f", "-", "-o", "json", stdin=yaml_of(SHARE_POD))
    answer = json.loads(result.stdout)
    assert [item["kind"] for item in answer["items"]] == ["ResourceClaimTemplate", "Pod"]
    names = {"object", "container", "dialect", "key", "outcome", "detail", "amount", "pointer"}
    assert set(answer["decisions"][0]) == names
    assert {decision["outcome"] for decision in answer["decisions"]} <= {"translated", "approximated"}


def with_hashes_as_template_names(obj: dict) -> dict:
    """Return the object with only the content hash of each template name, because the rest of the name depends on the file."""
    return json.loads(re.sub(r'(?<=TemplateName": ")[a-z0-9-]+-([0-9a-f]{16})[0-9a-f]*', r"\1", json.dumps(obj)))


def test_a_printed_template_has_no_name_reserved_for_the_webhook():
    [printed_template, printed_pod] = manifests.parse(run("translate", "-f", "-", stdin=yaml_of(SHARE_POD)).stdout)
    template_object = convert(printed_template.object, ResourceClaimTemplate)
    [claim_entry] = printed_pod.object["spec"]["resourceClaims"]
    assert template_object.metadata.name == claim_entry["resourceClaimTemplateName"]
    policy = (Path(__file__).parents[3] / "manifests/base/policies.yaml").read_text()
    reserved = re.search(r"matches\('(.*)'\)", policy)[1]
    assert re.match(reserved, "drawbridge-" + 16 * "0")
    assert not re.match(reserved, template_object.metadata.name)
    assert not is_ours(template_object)


def test_translate_and_the_webhook_translate_the_example_pods_alike():
    for document in manifests.read([EXAMPLES / "pods"]):
        if document.object["kind"] != "Pod":
            continue
        verdict = decide_object(document.object, STATE)
        expected = jsonpatch.apply_patch(copy.deepcopy(document.object), list(verdict.operations))
        result = run("translate", "-f", document.file, *FLEET_OPTIONS, "-o", "json")
        assert with_hashes_as_template_names(json.loads(result.stdout)["items"][-1]) == with_hashes_as_template_names(
            expected
        )
        assert result.exit_code == (1 if verdict.refusals else 0)


def test_a_patch_turns_the_input_into_the_output():
    patch = json.loads(run("translate", "-f", "-", "-o", "patch", stdin=yaml_of(CONFIG_MAP, SHARE_POD)).stdout)
    (change,) = patch
    translated_objects = [
        document.object for document in manifests.parse(run("translate", "-f", "-", stdin=yaml_of(SHARE_POD)).stdout)
    ]
    assert change["object"] == "Pod/n/p"
    assert [*change["templates"], jsonpatch.apply_patch(SHARE_POD, change["patch"])] == translated_objects


def test_a_diff_shows_removed_and_added_lines():
    lines = run("translate", "-f", "-", "-o", "diff", stdin=yaml_of(CONFIG_MAP, SHARE_POD)).stdout.splitlines()
    assert lines[:2] == ["--- a/Pod/n/p", "+++ b/Pod/n/p"]
    assert any(line.startswith("-") and "nvidia.com/gpumem" in line for line in lines)
    assert any(line.startswith("+") and "drawbridge-c0-gpu" in line for line in lines)
    assert run("translate", "-f", "-", "-o", "diff", stdin=yaml_of(CONFIG_MAP)).stdout == ""


def test_only_a_quota_of_the_pods_namespace_is_reported():
    quota = obj("ResourceQuota", "q", namespace="n", hard={"requests.nvidia.com/gpumem": "1"})
    assert "a ResourceQuota limits" in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, quota)).stderr
    quota_elsewhere = copy.deepcopy(quota)
    quota_elsewhere["metadata"]["namespace"] = "other"
    assert "a ResourceQuota limits" not in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, quota_elsewhere)).stderr


def test_limit_range_values_decide_the_translation_and_are_not_printed(tmp_path):
    configuration = tmp_path / "drawbridge.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    configuration.write_text(f"{head}cpuClaims: {{namespaces: {{'n': translate}}}}\n")
    pod_without_limits = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}  # fmt: skip
    limit_range = obj(
        "LimitRange",
        "l",
        namespace="n",
        limits=[{"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}}],
    )
    arguments = ("translate", "-f", "-", "--config", str(configuration))
    result_without_limit_range = run(*arguments, stdin=yaml_of(pod_without_limits))
    assert "resourceClaims" not in result_without_limit_range.stdout
    output = run(*arguments, stdin=yaml_of(pod_without_limits, limit_range)).stdout
    assert "dra.cpu/cpu: '2'" in output
    assert "resources:\n      claims:\n      - name: drawbridge-main-cpus\n" in output
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(yaml_of(limit_range))
    assert (
        "drawbridge-main-cpus"
        in run(*arguments, "--inventory", str(inventory), stdin=yaml_of(pod_without_limits)).stdout
    )


def test_only_a_limit_range_of_the_pods_namespace_is_reported():
    limit_range = obj(
        "LimitRange", "l", namespace="n", limits=[{"type": "Container", "max": {"nvidia.com/gpumem": "8000"}}]
    )
    assert "a LimitRange bounds it" in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range)).stderr
    limit_range["metadata"]["namespace"] = "other"
    assert "a LimitRange" not in run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range)).stderr
    # A malformed LimitRange is an error in any namespace.
    limit_range["spec"]["limits"] = 3
    result = run("translate", "-f", "-", stdin=yaml_of(SHARE_POD, limit_range))
    assert result.exit_code == 2
    assert "/spec/limits" in result.stderr


def test_a_share_is_not_translated_for_an_older_server():
    result = run("translate", "-f", "-", "--kubernetes", "1.35", stdin=yaml_of(SHARE_POD))
    assert kinds_in(result.stdout) == ["Pod"]
    assert "DRAConsumableCapacity" in result.stderr
    assert run("translate", "-f", "-", "--kubernetes", "two", stdin=yaml_of(SHARE_POD)).exit_code == 2


def test_the_all_kinds_option_translates_unknown_kinds():
    ray_cluster = obj("RayCluster", "r", "example.com/v1", namespace="n", worker={"spec": SHARE_POD["spec"]})
    assert kinds_in(run("translate", "-f", "-", stdin=yaml_of(ray_cluster)).stdout) == ["RayCluster"]
    assert kinds_in(run("translate", "-f", "-", "--all-kinds", stdin=yaml_of(ray_cluster)).stdout) == [
        "ResourceClaimTemplate",
        "RayCluster",
    ]


def test_translate_without_files_is_refused():
    result = run("translate", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["items"]) == (2, [])


def test_the_namespace_option_applies_to_objects_without_a_namespace():
    namespace_off = obj("Namespace", "off", labels={"drawbridge.dev/mode": "off"})
    pod_without_namespace, pod_elsewhere = (
        complete_pod(SHARE_POD, name="a", namespace=""),
        complete_pod(SHARE_POD, name="b", namespace="other"),
    )
    manifests_text = yaml_of(pod_without_namespace, pod_elsewhere, namespace_off)
    assert (
        kinds_in(run("translate", "-f", "-", *CONFIGURATION_OPTIONS, stdin=manifests_text).stdout).count(
            "ResourceClaimTemplate"
        )
        == 2
    )
    result = run("translate", "-f", "-", *CONFIGURATION_OPTIONS, "-n", "team", stdin=manifests_text)
    assert kinds_in(result.stdout) == ["ResourceClaimTemplate", "Pod", "Pod", "Namespace"]
    assert [document.object["metadata"].get("namespace") for document in manifests.parse(result.stdout)] == [
        None,
        "",
        "other",
        None,
    ]
    output = run(
        "translate", "-f", "-", *CONFIGURATION_OPTIONS, "-n", "off", "-o", "report", stdin=manifests_text
    ).stdout
    assert "Pod/off/a" in output
    assert "3 objects, 0 rewritten: 1 left, 2 without a legacy request" in output
    assert run("translate", "-f", "-", "-n", "off", "-A", stdin=manifests_text).exit_code == 2


def test_a_file_of_another_program_is_an_error_only_if_it_is_named(tmp_path):
    """A folder of a repository has labels of issues and playbooks beside its manifests; a named file was meant as a manifest."""
    (tmp_path / "pod.yaml").write_text(yaml_of(SHARE_POD))
    (tmp_path / "labels.yml").write_text("- name: bug\n  color: red\n")
    of_folder = run("translate", "-f", str(tmp_path), *FLEET_OPTIONS)
    assert of_folder.exit_code == 0
    assert "skipped, not a manifest" in of_folder.stderr
    assert "Pod" in kinds_in(of_folder.stdout)
    named = run("translate", "-f", str(tmp_path / "pod.yaml"), "-f", str(tmp_path / "labels.yml"), *FLEET_OPTIONS)
    assert named.exit_code == 2
    assert "this document is a list" in named.stderr
