"""Every command reads the same objects in the same way, and names the objects that it cannot read."""

import pytest

from tests.cli.running import manifest, run
from tests.corpus.move import migrated_fleet
from tests.objects import pod
from tests.webhook.pods import EXAMPLES

FLEET = EXAMPLES / "fleet"
GPU = "nvidia.com/gpu"


def gpu_pod(name="p", **spec):
    return pod(name, limits={GPU: "1"}, **spec)


BAD_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bad", "labels": 3}}
# Commands that read a pod (POD), a malformed Node (BAD) and a fleet; the exit code; a text about the other objects.
COMMANDS_WITH_A_BAD_NODE = {
    "translate": ("translate -f POD --inventory BAD", 2, ""),
    "translate, Node as input": ("translate -f POD -f BAD", 2, "kind: Pod"),
    "check": ("check -f POD --inventory BAD", 0, "1 object checked"),
    "check, Node as input": ("check -f POD -f BAD", 2, "2 objects checked"),
    "survey": ("survey -f POD -f BAD -f FLEET", 0, "served"),
    "simulate": ("simulate -f POD -f BAD -f FLEET", 3, "1 of 1 pod placed"),
    "explain": ("explain pod/p -f POD -f BAD -f FLEET", 0, "pod default/p"),
    "free": ("free -f POD -f BAD -f FLEET", 0, "train-1"),
    "doctor": ("doctor -f POD -f BAD -f FLEET", 3, "0 findings"),
}


@pytest.mark.parametrize("name", COMMANDS_WITH_A_BAD_NODE)
def test_a_malformed_object_is_named_and_the_rest_is_used(name, tmp_path):
    arguments, code, text_about_others = COMMANDS_WITH_A_BAD_NODE[name]
    pod_file, bad_file = manifest(tmp_path / "pod.json", gpu_pod()), manifest(tmp_path / "bad.json", BAD_NODE)
    files = {"POD": pod_file, "BAD": bad_file, "FLEET": FLEET}
    result = run(*(files.get(argument, argument) for argument in arguments.split()))
    assert (result.exit_code, text_about_others in result.stdout) == (code, True), result.output
    assert f"{tmp_path}/bad.json:1" in result.output
    assert "FLEET" not in arguments or f"warning: not read: Node default/bad: {bad_file}:1: " in result.stderr


@pytest.mark.parametrize("command", [("translate", "-o", "report"), ("survey",), ("explain", "pod/p")])
def test_slices_without_nodes_give_no_finding_about_nodes(tmp_path, command):
    fleet = [obj for obj in migrated_fleet("n") if obj["kind"] not in ("Node", "Namespace")]
    for obj in fleet:
        if obj["kind"] == "DeviceClass":
            obj["spec"]["extendedResourceName"] = GPU
    result = run(*command, "-f", manifest(tmp_path / "all.yaml", gpu_pod(), *fleet))
    assert GPU in result.stdout
    assert "no node" not in result.output


@pytest.mark.parametrize("arguments", [("translate",), ("check",), ("survey", "-o", "wide"), ("explain", "pod/p")])
def test_a_template_missing_from_the_files_is_not_called_unreadable(arguments, tmp_path):
    pod_with_template = gpu_pod(resourceClaims=[{"name": "d", "resourceClaimTemplateName": "absent"}])
    file = manifest(tmp_path / "pod.json", pod_with_template)
    output = run(*arguments, "-f", file, "-f", FLEET).output
    assert "could not be read" not in output


# Every command that reads pods from files.
COMMANDS = (
    *(("translate", "-o", form) for form in ("yaml", "json", "diff", "patch", "report")),
    ("check",),
    ("survey",),
    ("simulate",),
    ("explain", "pod/p"),
    ("resize", "pod/p", f"{GPU}=1"),
    ("free",),
    ("doctor",),
    ("quota",),
    ("demo", "--once"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_null_amount_counts_as_absent(command, tmp_path):
    pod_with_null = gpu_pod()
    pod_with_null["spec"]["containers"][0]["resources"]["limits"][GPU] = None
    file = manifest(tmp_path / "pod.json", pod_with_null)
    result = run(*command, "-f", file, *(() if command[0] == "demo" else ("-f", FLEET)))
    assert result.exit_code == 0, result.output
    assert "quantity" not in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_helm_template_is_skipped_and_named(command, tmp_path):
    manifest(tmp_path / "pod.json", gpu_pod())
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: c\nversion: 0.1.0\n")
    (tmp_path / "templates" / "a.yaml").write_text(
        "kind: Pod\nmetadata: {{ .Values.metadata }}\nspec: {{ .Values.spec }}\n"
    )
    result = run(*command, "-f", tmp_path, *(() if command[0] == "demo" else ("-f", FLEET)))
    assert result.exit_code == 0, result.output
    assert f"skipped, templates in 1 file ({tmp_path}/templates/a.yaml)" in result.stderr
