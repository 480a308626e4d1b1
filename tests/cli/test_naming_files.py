"""How files are named, with `-f` or without an option, which files are skipped, and warnings about the objects in files."""

import json

import pytest

from cli.commands.demo import EXAMPLES
from tests.allocator.fleets import gpu
from tests.cli.commands.fleets import class_of, node_slice
from tests.cli.running import manifest, run, run_json
from tests.objects import claim, exactly, node, obj, pod


@pytest.mark.parametrize("command", ["translate", "check", "simulate"])
def test_a_positional_file_is_read_like_one_with_f(command, tmp_path):
    file = manifest(tmp_path / "pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    positional, with_option = run(command, file), run(command, "-f", file)
    assert (positional.exit_code, positional.stdout) == (with_option.exit_code, with_option.stdout)
    assert "nothing-of-this-name: cannot be read" in run(command, "nothing-of-this-name", "--", file).stderr


def test_an_endless_file_exits_with_2():
    result = run("translate", "-f", "/dev/zero")
    assert result.exit_code == 2
    assert "/dev/zero: is larger than 512 MiB" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["simulate", "survey", "free", "doctor"])
def test_commands_warn_of_an_object_that_is_defined_twice(command, tmp_path):
    file = manifest(tmp_path / "both.yaml", *[node("n0")] * 2)
    assert "defined more than once, and the last definition counts: Node n0" in run(command, "-f", file).stderr


def test_the_last_definition_of_an_object_counts(tmp_path):
    """Two copies of a slice are one slice: `kubectl apply` of the second replaces the first."""
    objects = [node("n0"), class_of("gpu"), node_slice("n0", gpu("gpu-0"), name="s")]
    larger_slice = node_slice("n0", gpu("gpu-0"), gpu("gpu-1"), name="s")
    file = manifest(tmp_path / "both.yaml", *objects, larger_slice, claim("c", exactly("gpu", count=2)))
    result = run("simulate", "-f", file, "--claims")
    assert result.exit_code == 0
    assert "defined more than once, and the last definition counts: ResourceSlice s" in result.stderr
    later_objects = [claim("c", exactly("gpu", count=2)), node_slice("n0", gpu("gpu-0"), name="s")]
    assert (
        run(
            "simulate", "-f", manifest(tmp_path / "less.yaml", *objects, larger_slice, *later_objects), "--claims"
        ).exit_code
        == 1
    )


@pytest.mark.parametrize("command", ["translate", "check", "simulate", "survey"])
def test_concatenated_files_without_a_separator_are_reported(command, tmp_path):
    """`cat a.yaml b.yaml`: two objects become one mapping, and half of the keys are lost."""
    first = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n"
    second = "# the other file\napiVersion: v1\nkind: Node\nmetadata:\n  name: b\n"
    file = tmp_path / "both.yaml"
    file.write_text(first + second)
    message = f"{file}:7: duplicate key kind: only one of two objects is read; is a line --- missing?"
    assert message in run(command, "-f", str(file)).stderr
    file.write_text(f"{first}---\n{second}")
    assert "duplicate key" not in run(command, "-f", str(file)).stderr


@pytest.mark.parametrize("selector", ["a=b,,c", "a in b", "=", "!!"])
def test_an_invalid_selector_exits_with_2(selector, tmp_path):
    file = manifest(tmp_path / "pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    result = run("survey", "-f", file, "-l", selector)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: -l: unable to parse label selector")
    assert "Traceback" not in result.stderr


GPU_POD = obj(
    "Pod", "train", containers=[{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
)


@pytest.mark.parametrize(
    ("folder", "marker_file"),
    [("vendor", "modules.txt"), ("node_modules", ""), (".terraform", ""), (".venv", ""), (".git", "")],
)
def test_package_folders_are_not_read(folder, marker_file, tmp_path):
    """A Node in the test data of a vendored package would turn the repository into a cluster without GPUs."""
    package = tmp_path / folder / "testdata"
    package.mkdir(parents=True)
    manifest(package / "node.yaml", node("n0"))
    manifest(tmp_path / "pod.yaml", GPU_POD)
    if marker_file:
        (tmp_path / folder / marker_file).write_text("# k8s.io/apimachinery v0.37.1\n")
    result = run("translate", "-f", str(tmp_path), "-o", "report")
    assert "1 object, 1 rewritten" in result.stdout
    assert run("check", str(package / "node.yaml")).stdout.startswith("1 object"), (
        "a file of a package folder is read if the command line names it"
    )


def test_a_vendor_folder_without_go_modules_is_read(tmp_path):
    (tmp_path / "vendor").mkdir()
    manifest(tmp_path / "vendor" / "pod.yaml", GPU_POD)
    assert "1 object, 1 rewritten" in run("translate", "-f", str(tmp_path), "-o", "report").stdout


@pytest.mark.parametrize("command", ["translate", "check"])
def test_a_node_that_turns_files_into_a_cluster_is_named(command, tmp_path):
    node_file, class_file = tmp_path / "node.yaml", tmp_path / "class.yaml"
    manifest(node_file, node("n0"))
    manifest(class_file, class_of("gpu"))
    pod_file = manifest(tmp_path / "pod.yaml", GPU_POD)
    message = f"{node_file}:1: this Node makes the files count as a cluster without DeviceClasses"
    assert message in run(command, "-f", pod_file, "-f", str(node_file)).stderr
    assert message not in run(command, "-f", pod_file, "-f", str(node_file), "-f", str(class_file)).stderr
    assert message not in run(command, "-f", pod_file, "--inventory", str(node_file)).stderr
    claim_file = manifest(tmp_path / "claim.yaml", claim("c", exactly("missing")))
    errors = run(command, "-f", claim_file, "-f", str(node_file), "-f", str(class_file)).stderr
    assert message.replace("without", "with only their") in errors


@pytest.mark.parametrize(
    "directive", ["%{ if can(namespace) }namespace: ${namespace}%{ endif }", "%{~ for one in all ~}\n- a"]
)
def test_templates_of_terraform_are_skipped_and_counted(directive, tmp_path):
    text = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{directive}\n"
    (tmp_path / "kustomization.tftpl.yaml").write_text(text)
    manifest(tmp_path / "pod.yaml", GPU_POD)
    result = run("translate", "-f", str(tmp_path), "-o", "report")
    assert result.exit_code == 0
    assert "skipped, templates in 1 file" in result.stderr


CHART_TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}"}
spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


@pytest.mark.parametrize("command", ["check", "translate -o patch"])
@pytest.mark.parametrize(
    "text",
    [
        CHART_TEMPLATE,
        CHART_TEMPLATE.replace('"{{ .Release.Name }}"', "p").replace("gpu: 1", 'gpu: "{{ .Values.gpus }}"'),
        CHART_TEMPLATE.replace("spec:", 'a: "{{ $.Files.Get "x" }}"\nspec:'),
        CHART_TEMPLATE.replace('"{{', "{{").replace('}}"', "}}"),
        CHART_TEMPLATE.replace('"{{ .Release.Name }}"', "p").replace("spec:", "{% if gpu %}\nspec:") + "{%- endif %}\n",
    ],
    ids=["in the name", "in an amount", "with nested quotes", "without quotes", "Jinja"],
)
def test_a_template_is_skipped_with_a_note(command, text, tmp_path):
    (tmp_path / "pod.yaml").write_text(text)
    (tmp_path / "fine.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n")
    result = run(*command.split(), "-f", tmp_path)
    assert result.exit_code == 0, result.output
    assert "skipped, templates in 1 file" in result.output
    assert f"{tmp_path}/pod.yaml" in result.output
    assert "{{" not in result.stdout
    options = ("-f", tmp_path / "fine.yaml", "--inventory", tmp_path / "pod.yaml")
    result_with_inventory = run("check", *options)
    assert (result_with_inventory.exit_code, result_with_inventory.stderr.count("skipped, templates in 1 file")) == (
        0,
        1,
    )


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n annotations: {a: '{{ x }}'}\n",
        'kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n annotations:\n   a: "{{ x }} {{ y }}\n     more"\n',
    ],
)
def test_a_broken_manifest_with_quoted_braces_is_no_template(text, tmp_path):
    (tmp_path / "pod.yaml").write_text(text)
    result = run("check", "-f", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path}/pod.yaml:" in result.stderr


def test_braces_filled_in_at_run_time_are_no_template(tmp_path):
    """Braces are part of `docker inspect --format {{.Id}}`, of Vault's annotations, and of alerts in a ConfigMap."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"vault": "{{ with }}"}}}
    container = {"name": "main", "image": "x", "args": ["--format={{.Id}}"], "env": [{"name": "A", "value": "{{ a }}"}]}
    rules = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rules"}, "data": {"a": "{{ $value }}"}}
    probe = {"exec": {"command": ["sh", "-c", "echo {{ x }}"]}}
    pod["spec"] = {"containers": [container | {"livenessProbe": probe}]}
    application_set = {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "all"}}
    application_set["spec"] = {"template": {"metadata": {"name": "{{ .name }}"}}}
    file = manifest(tmp_path / "all.yaml", pod, rules, application_set)
    code, answer = run_json("check", file)
    assert (code, answer["findings"], answer["skippedDocuments"]) == (0, [], [])


ARGO_WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: train}
spec:
  templates:
  - {name: main, container: {image: x, resources: {limits: {nvidia.com/gpu: "{{inputs.parameters.gpus}}"}}}}
"""


@pytest.mark.parametrize("text", [ARGO_WORKFLOW, json.dumps(GPU_POD).replace('"1"', '"${GPUS}"')])
def test_check_survey_and_translate_warn_of_a_placeholder(text, tmp_path):
    (tmp_path / "app.yaml").write_text(text)
    checked, surveyed, diff = (
        run(*arguments, "-f", tmp_path) for arguments in (["check"], ["survey"], ["translate", "-o", "diff"])
    )
    assert (checked.exit_code, surveyed.exit_code, diff.exit_code) == (0, 0, 0)
    assert "warning D011" in checked.stdout
    assert "placeholder" in surveyed.stdout
    assert ": warning: " in diff.stderr
    assert "placeholder" in diff.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("free", "-f"),
        ("doctor", "-f"),
        ("demo", "--once", "--inventory"),
        ("standalone", "--inventory"),
        *((command, "-f", "POD", "--inventory") for command in ("check", "translate", "simulate", "survey")),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_file_without_a_fleet_is_refused_as_one(arguments, tmp_path):
    pod_file = manifest(tmp_path / "pod.yaml", pod("p"))
    result = run(*(pod_file if argument == "POD" else argument for argument in arguments), pod_file)
    assert result.exit_code == 2
    assert "no fleet in the input, only Pod (give a file that `drawbridge snapshot" in result.stderr


def test_an_inventory_without_files_is_not_ignored():
    assert "--inventory needs -f" in run("survey", "--inventory", "fleet.yaml").stderr


@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_the_fleet_is_an_inventory_or_a_part_of_the_input(option, tmp_path):
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod_file = manifest(tmp_path / "pod.yaml", pod("p", containers=[container]))
    assert "1 of 1 pod placed" in run("simulate", "-f", pod_file, option, EXAMPLES / "fleet").stdout


@pytest.mark.parametrize(("named", "code"), [(True, 2), (False, 0)], ids=["named", "in a folder"])
def test_a_file_that_is_no_text_is_an_error_if_it_is_named(named, code, tmp_path):
    (tmp_path / "tool.yaml").write_bytes(b"\x7fELF\x02\0\0")
    manifest(tmp_path / "pod.yaml", pod("p", containers=[{"name": "c", "image": "i"}]))
    result = run("check", "-f", tmp_path / "tool.yaml" if named else tmp_path)
    assert result.exit_code == code, result.output
    assert ("is the file a program or an archive?" in result.stderr) is named
