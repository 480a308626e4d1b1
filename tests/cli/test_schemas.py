"""The published schemas equal the code, and the output of the commands matches them."""

import json
import re
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.main import COMMANDS, command_of
from cli.schemas.schema import ANSWERS, NAMES, text_of
from docs.chart_values import values_schema
from docs.generate import ROOT
from tests.cli.running import empty_directory, manifest, run  # noqa: F401  a fixture
from tests.loops import every
from tests.schemas import wrong
from tests.webhook.dialects.test_rules import FILES, HEAD
from webhook.state.configuration import read_configuration

EXAMPLES = ROOT / "manifests" / "examples"
FLEET, MODES, PODS, WHY = (str(EXAMPLES / name) for name in ("fleet", "modes", "pods", "why"))
# By command and type of the printed document: the arguments of a call.
CALLS = {
    "translate Translated": ["translate", "-f", PODS],
    "survey Surveyed": ["survey", "-f", PODS],
    "check Checked": ["check", "-f", PODS],
    "explain Explained": ["explain", "R023"],
    "explain OfPod": ["explain", "pod", "notebook", "-f", WHY],
    "explain OfWorkload": ["explain", "deployment/training", "-f", PODS],
    "explain OfClaim": ["explain", "claim", "notebook-gpu-7xk2p", "-f", WHY],
    "explain OfDevice": ["explain", "device", "node-b/gpu-1", "-f", WHY],
    "simulate SimulatedClaims": ["simulate", "-f", MODES, "--claims"],
    "simulate Simulated": ["simulate", "-f", MODES],
    "free Held": ["free", "-f", WHY],
    "quota Limited": ["quota", "-f", WHY],
    "resize OfResize": ["resize", "deployment/training", "nvidia.com/gpu=2", "-f", PODS],
    "doctor Examined": ["doctor", "-f", MODES],
    "uninstall Uninstalled": ["uninstall"],
    "node-agent NodeAudit": ["node-agent", "--once", "--node-name", "n0", "--kubelet-dir", "away", "--cdi-dir", "away"],
    "snapshot Saved": ["snapshot", "--to", "snapshot.json"],
    "dialects Vocabularies": ["dialects"],
    "migrate MigrationPlan": ["migrate", "plan", str(EXAMPLES / "pods")],
    "migrate PullRequest": ["migrate", "pr"],
    "migrate Acceptance": ["migrate", "accept", "n0"],
    "migrate MigrationStatus": ["migrate", "status", str(EXAMPLES / "homelab")],
    "test OfCases": ["test", str(EXAMPLES / "cases")],
    "version OfVersion": ["version"],
}
SCHEMAS = {name: json.loads(text_of(name)) for name in NAMES}
CONFIGURATION = SCHEMAS["config"]


@every("name", NAMES)
def test_the_schema_command_prints_the_published_schemas(name):
    assert run("schema", name).stdout == ((ROOT / "docs" / "schemas") / f"{name}.json").read_text()


def answers_in_json(name):
    command = command_of(name)
    steps = getattr(command, "commands", {"": command}).values()
    forms = [option.type for step in steps for option in step.params if option.name == "output"]
    return any("json" in form.choices for form in forms)


def test_every_command_that_answers_in_json_has_a_schema():
    assert {name for name in COMMANDS if answers_in_json(name)} == set(NAMES) - {"config"}
    documents = {f"{name} {type_.__name__}" for name, types in ANSWERS.items() for type_ in types}
    assert set(CALLS) == documents, "CALLS needs a call for every type of document"


def members(schema):
    """Return the names of all members that a schema names, at any depth."""
    if isinstance(schema, list):
        return {name for part in schema for name in members(part)}
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", ())) | {name for part in schema.values() for name in members(part)}


@every("name", ANSWERS)
def test_every_member_is_in_camel_case(name):
    assert [member for member in members(SCHEMAS[name]) if not re.fullmatch(r"[a-z][A-Za-z]*", member)] == []


def test_no_description_has_a_directive_for_a_tool():
    texts = [values_schema(), *(text_of(name) for name in NAMES)]
    assert [line for text in texts for line in text.splitlines() if re.search(r"noqa|type: ignore", line)] == []


def test_an_unknown_schema_name_has_a_suggestion():
    result = run("schema", "confg")
    assert result.exit_code == 2
    assert "did you mean config?" in result.stderr
    assert run("schema").stdout.split()[0] == "config"


LOST_CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "lost", "namespace": "team-a", "uid": "1"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "no-such-class"}}]}},
}


def answer_of(*args):
    """Return the JSON output of a command, and the violations of the command's schema in the output."""
    answer = json.loads(run(*args, "-o", "json").stdout)
    return answer, wrong(answer, SCHEMAS[args[0]], closed=True)


@pytest.fixture
def repository(tmp_path):
    """A Git repository with one manifest."""
    manifest(tmp_path / "manifest.yaml", LOST_CLAIM)
    author = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "manifest"]):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)


@pytest.mark.usefixtures("empty_directory", "repository")
@pytest.mark.parametrize("call", CALLS)
def test_the_output_of_each_command_matches_its_schema(call):
    command, document = call.split()
    answer, problems = answer_of(*CALLS[call])
    assert problems == [], "the types in cli/schemas/answers.py do not describe the output"
    assert set(answer) == set(SCHEMAS[command]["definitions"][document]["properties"]) - {"errors"}


TOO_MANY_DEVICES = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 99}}]
# A call, and a member of its answer that is not empty. CLAIM is a file with a claim that no node can serve.
CALLS_WITH_MORE_MEMBERS = [
    (["survey", "-f", PODS, "-f", FLEET, "-f", MODES], lambda answer: answer["drivers"] and answer["reasons"]),
    (["translate", "-f", PODS, "--inventory", FLEET], lambda answer: answer["refusals"]),
    (["simulate", "-f", MODES, "-f", "CLAIM", "--node", "gpu-node", "--claim", "team-a/lost"], lambda answer: answer["nodes"]["gpu-node"]["verdict"] in ("infeasible", "error")),
    (["simulate", "-f", PODS, "-f", FLEET], lambda answer: {bool(pod["node"]) for pod in answer["pods"]} == {True, False}),
    (["doctor", "-f", "CLAIM"], lambda answer: answer["findings"]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "has_members"), CALLS_WITH_MORE_MEMBERS)
def test_answers_with_more_members_match_their_schema(call, has_members, tmp_path):
    file = manifest(tmp_path / "claim.json", LOST_CLAIM | {"spec": {"devices": {"requests": TOO_MANY_DEVICES}}})
    answer, problems = answer_of(*(file if part == "CLAIM" else part for part in call))
    assert problems == []
    assert has_members(answer)


@pytest.mark.parametrize("call", [call for call in CALLS if "-f" in CALLS[call]])
def test_the_output_for_an_unreadable_file_matches_the_schema(call, tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_text("apiVersion: [")
    answer, problems = answer_of(*[str(file) if part in (PODS, MODES, WHY) else part for part in CALLS[call]])
    assert problems == []
    assert answer["errors"]


@pytest.mark.usefixtures("empty_directory")
@pytest.mark.parametrize("call", CALLS)
def test_the_output_for_an_unknown_option_matches_the_schema(call):
    answer, problems = answer_of(*CALLS[call], "--no-such-option")
    assert problems == []
    assert answer["errors"]


def test_a_member_that_no_schema_names_is_reported():
    answer, _ = answer_of("explain", "R023")
    answer["codes"][0]["colour"] = "red"
    assert wrong(answer, SCHEMAS["explain"]) == []
    assert wrong(answer, SCHEMAS["explain"], closed=True) == ["/codes/0/colour: no schema names it"]


def example_configuration(name="configuration.yaml"):
    return yaml.safe_load((EXAMPLES / name).read_text())


def changed_example(path, value):
    """Return the example configuration with this value at this path."""
    configuration = parent = example_configuration()
    *keys, last = path
    for key in keys:
        parent = parent[key]
    parent[last] = value
    return configuration


@every(
    ("path", "value"),
    [
        (["mode"], "loud"),
        (["canary"], "all"),
        (["dialect"], []),
        (["dialects", 0, "name"], 3),
        (["dialects", 0, "keys", 0, "rolle"], "nic"),
        (["dialects", 0, "keys", 0, "role"], "optOut"),
        (["dialects", 0, "keys", 0, "role"], "partition"),
        (["dialects", 0, "keys", 0, "outcome"], "refused"),
        (["dialects", 0, "keys", 0, "place"], "env"),
        (["dialects", 0, "keys", 0, "unit"], "MB"),
        (["dialects", 0, "keys", 0], {"name": "example.com/a"}),
        (["targets"], [{"name": "npu"}]),
        (["bridge"], {}),
        (["hami"], {"memoryFactor": "ten"}),
        (["nodeTemplates", 0, "devices", 0, "capacity", "memory"], "141Gi"),
    ],
)
def test_schema_and_code_refuse_the_same_configurations(path, value):
    assert wrong(changed_example(path, value), CONFIGURATION)
    assert read_configuration(changed_example(path, value))[0] is None


def test_schema_and_code_accept_the_example():
    assert wrong(example_configuration(), CONFIGURATION) == []
    assert read_configuration(example_configuration())[1] == []


# Types from Kubernetes, and fields that all objects have. The schema does not describe them.
KUBERNETES_TYPES = {"DeviceAttribute", "DeviceCapacity", "CapacityRequestPolicy", "CapacityRequestPolicyRange"}
COMMON_FIELDS = {"apiVersion", "kind", "metadata"}


def test_every_setting_has_a_description():
    """The description of a field in the schema is also its description in docs/configuration.md."""
    fields = {name: field for name, field in CONFIGURATION["properties"].items() if name not in COMMON_FIELDS}
    owners = {
        name: definition
        for name, definition in CONFIGURATION["definitions"].items()
        if name not in {*KUBERNETES_TYPES, "Metadata"}
    }
    owners["File"] = {"properties": fields}
    undescribed = [
        f"{owner}.{name}"
        for owner, definition in owners.items()
        for name, member in definition.get("properties", {}).items()
        if not member.get("description")
    ]
    assert undescribed == []


FIELD_NAMES = st.sampled_from(["dialects", "targets", "mode", "canary", "keys", "dialect", "metadata"])
FIELD_VALUES = st.sampled_from(
    [[], {}, "off", 3, True, [{}], {"a": {"b": "c"}}, {"name": "x"}, [{"name": "x", "driver": "y"}]]
)


@given(FILES, st.dictionaries(FIELD_NAMES, FIELD_VALUES, max_size=2))
def test_a_configuration_that_the_code_accepts_passes_the_schema(file, replaced_fields):
    document = {**HEAD, **file, **replaced_fields}
    configuration, _ = read_configuration(document)
    problems = wrong(without_nulls(document), CONFIGURATION)
    if configuration is not None:
        assert problems == []


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


SCHEMA_COMMENT = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


def test_examples_name_the_schema_in_the_repository():
    files = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if "kind: DrawbridgeConfiguration" in path.read_text()]
    assert files
    for path in files:
        comment = SCHEMA_COMMENT.match(path.read_text())
        assert comment, path
        assert (path.parent / comment[1]).resolve() == (ROOT / "docs" / "schemas") / "config.json"
