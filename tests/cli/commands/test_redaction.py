"""Redaction removes everything that may be secret, and nothing that decides about devices."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.configuration import configuration_in_force
from analysis.redaction import Redaction
from tests import shapes
from tests.cli.commands.secret_pod import LIMITS, SECRET, pod_with
from tests.cli.running import run, run_json
from tests.limits import draws
from webhook.state.configuration import DEFAULT as DEFAULT_FILE
from webhook.state.configuration import Configuration

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
DEFAULT_CONFIGURATION = Configuration(DEFAULT_FILE)


def redact(obj):
    """Return the redacted object, and the number of values that are left out."""
    redaction = Redaction(DEFAULT_CONFIGURATION)
    return redaction.redact(obj), redaction.left_out


SECRET_FIELDS = {
    "a variable": {"env": [{"name": "A", "value": SECRET}]},
    "a command": {"command": ["sh", "-c", SECRET]},
    "arguments": {"args": ["--token", SECRET]},
    "a hook": {"lifecycle": {"postStart": {"exec": {"command": [SECRET]}}}},
    "a probe": {"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}},
    "a variable in a mapping": {"environment": {"A": SECRET}},
    "a variable whose name is in the field key": {"envs": [{"key": "A", "value": SECRET}]},
    "a password": {"redis-password": SECRET},
    "a token": {"hfToken": SECRET},
    "an API key": {"apiKey": SECRET},
}


@pytest.mark.parametrize("field", SECRET_FIELDS)
def test_values_that_may_be_secret_are_redacted_at_any_depth(field):
    nested_object = {
        "kind": "RayCluster",
        "spec": {"groups": [{"template": {"spec": {"containers": [SECRET_FIELDS[field]]}}}]},
    }
    redacted_object, left_out = redact(nested_object)
    assert SECRET not in json.dumps(redacted_object)
    assert left_out >= 1
    assert SECRET in json.dumps(nested_object), "redaction changed the object that it was given"


def test_unknown_annotations_and_managed_fields_are_left_out():
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET}),
        "example.com/unknown": "x",
    }
    redacted_object, _ = redact({"metadata": {"annotations": annotations, "managedFields": [{"manager": SECRET}]}})
    assert redacted_object == {"metadata": {"annotations": {}}}


@pytest.mark.parametrize(
    "annotation",
    [
        {"kubernetes.io/change-cause": SECRET},
        {"deprecated.kubernetes.io/note": f"kubectl set env deploy/a PASSWORD={SECRET}"},
        {"csi.volume.kubernetes.io/nodeid": json.dumps({"a": SECRET})},
        {"nginx.ingress.kubernetes.io/snippet": f"{SECRET}\n"},
        {"scheduler.alpha.kubernetes.io/long": SECRET * 64},
    ],
)
def test_free_text_in_kubernetes_annotations_is_left_out(annotation):
    kept_annotations = {"resource.kubernetes.io/pod-claim-name": "gpu", "kubernetes.io/config.source": "api", "drawbridge.dev/templates": '{"a": "b"}'}  # fmt: skip
    redacted_object, left_out = redact(
        {"kind": "RayCluster", "metadata": {"annotations": kept_annotations | annotation}}
    )
    assert redacted_object["metadata"] == {"annotations": kept_annotations}
    assert left_out == 1


def test_free_text_in_a_dialects_domain_is_left_out():
    """A dialect is the table of the keys of one system. Koordinator reads kubernetes.io/gpu, so kubernetes.io is the domain of a dialect."""
    kept_annotations = {
        "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,1,2:;",
        "nvidia.com/use-gputype": "A100, or any",
        "kubernetes.io/word": "any",
    }
    free_texts = {"kubernetes.io/change-cause": SECRET, "kubernetes.io/description": SECRET, "kubernetes.io/a": f"{SECRET} b", "nvidia.com/note": f"--{SECRET} {SECRET}"}  # fmt: skip
    redacted_pod = Redaction(DEFAULT_CONFIGURATION).redact(
        pod_with() | {"metadata": {"name": "p", "annotations": kept_annotations | free_texts}}
    )
    assert (
        redacted_pod["metadata"]["annotations"].keys() & (kept_annotations.keys() | free_texts.keys())
        == kept_annotations.keys()
    )


def test_redaction_keeps_requests_known_variables_and_secret_references():
    spec = {
        "imagePullSecrets": [{"name": "pull"}],
        "automountServiceAccountToken": False,
        "volumes": [{"secret": {"secretName": "s", "items": [{"key": "tls.crt", "path": "crt"}]}}],
        "containers": [
            {
                "resources": {"limits": LIMITS},
                "env": [
                    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
            }
        ],
    }
    obj = {"metadata": {"annotations": {"hami.io/use-gputype": "A100"}}, "spec": spec}
    redacted_object, left_out = redact(obj)
    assert redacted_object == {"metadata": obj["metadata"], "spec": {"containers": spec["containers"]}}
    assert left_out == 5  # the first two fields of the spec, and three values of the volume


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["env", "name", "value", "args", "metadata", "annotations", "a"]), inner)
    ),
    max_leaves=20,
)


@given(obj=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind", "env"]), JSON_VALUES))
def test_redaction_accepts_any_object_and_is_idempotent(obj):
    redacted_object, left_out = redact(obj)
    assert left_out >= 0
    redacted_twice, _ = redact(redacted_object)
    assert redacted_twice == redacted_object


FILE_KINDS = (
    "DeviceInventory",
    "DrawbridgeConfiguration",
    "Workload",
    "List",
)  # no cluster stores objects of these kinds
# By command: the parts of its answer that redaction must not change.
ANSWER_FIELDS = {
    "translate": ("decisions",),
    "survey": ("workloads",),
    "check": ("findings",),
    "simulate": ("pods", "totals"),
    "doctor": ("findings",),
    "quota": ("quotas",),
}
# `homelab` is a Git tree: a snapshot is of a cluster, which has the objects that a chart makes from its values.
EXAMPLE_FOLDERS = sorted(
    path.name for path in EXAMPLES.iterdir() if path.is_dir() and any(path.rglob("*.yaml")) and path.name != "homelab"
)


@pytest.mark.parametrize("folder", random.Random(0).sample(EXAMPLE_FOLDERS, draws(len(EXAMPLE_FOLDERS))))
def test_redaction_changes_no_answer_about_an_example(folder, tmp_path):
    from cluster.manifests import read_leniently

    documents, _ = read_leniently([str(EXAMPLES / folder)])
    objects = [document.object for document in documents]
    redaction = Redaction(configuration_in_force(None, documents).configuration)
    redacted_objects = [obj if obj.get("kind") in FILE_KINDS else redaction.redact(obj) for obj in objects]
    redacted_objects = [
        json.loads(line) for line in redaction.finish(json.dumps(obj).encode() for obj in redacted_objects)
    ]
    pods = [obj for obj in objects if obj.get("kind") == "Pod"][:3]
    file = tmp_path / "given.json"
    answers = []
    for given_objects in (objects, redacted_objects):
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": given_objects}))
        answers_by_question = {}
        for command, fields in ANSWER_FIELDS.items():
            code, answer = run_json(command, "-f", file)
            answers_by_question[command] = [code, *(comparable(command, answer.get(name)) for name in fields)]
        for stored_pod in pods:
            name = f"{stored_pod['metadata'].get('namespace', 'default')}/{stored_pod['metadata'].get('name')}"
            answers_by_question[name] = run("explain", f"pod/{name}", "-f", file).stdout
        inventory_options = (
            "--inventory",
            file,
            *(part for path in sorted((EXAMPLES / folder).rglob("*.yaml"))[:3] for part in ("-f", path)),
        )
        answers_by_question["inventory"] = [
            run(command, *inventory_options).stdout for command in ("check", "translate")
        ]
        answers.append(answers_by_question)
    for question, answer in answers[0].items():
        assert answers[1][question] == answer, question


def comparable(command, answer):
    """The answer without places in files, and without findings about unknown or malformed fields."""
    if command != "check":
        return answer
    return [
        (finding["code"], finding["object"], finding["message"])
        for finding in answer
        if finding["code"] not in ("D002", "D001")
    ]


MARKED_TEXT = "m4rk3d"


def with_unknown_field(value, draw):
    """A copy of the object with an unknown field in a random mapping of the object."""
    value = json.loads(json.dumps(value))
    branches = [value]
    for branch in branches:
        members = branch.items() if isinstance(branch, dict) else enumerate(branch)
        # In these mappings, any name is a label and not an unknown field.
        branches += [
            member
            for name, member in members
            if isinstance(member, dict | list) and name not in ("matchLabels", "nodeSelector")
        ]
    mapping = draw.choice([branch for branch in branches if isinstance(branch, dict) and not _is_map(branch)])
    field_value = draw.choice(
        (
            MARKED_TEXT,
            [MARKED_TEXT],
            {"a": MARKED_TEXT},
            [{"name": MARKED_TEXT}],
            {"value": MARKED_TEXT},
            {MARKED_TEXT: MARKED_TEXT},
        )
    )
    mapping[draw.choice(("unknown", "secretKey", "options", "message", "workingDir", "x-y"))] = field_value
    return value


def _is_map(value):
    """Return whether a mapping may have any keys: amounts by resource, labels, attributes by name."""
    return any("/" in name or "." in name or name in ("cpu", "memory") for name in value) or not value


def test_an_unknown_field_is_dropped_wherever_it_appears():
    draw = random.Random("members")
    redaction = Redaction(DEFAULT_CONFIGURATION)
    examples = [obj for kind, objects in shapes.examples().items() if kind not in FILE_KINDS for obj in objects]
    for _ in range(3000):
        obj = with_unknown_field(draw.choice(examples), draw)
        [line] = redaction.finish([json.dumps(redaction.redact(obj)).encode()])
        assert MARKED_TEXT not in line.decode(), obj
