"""Redaction removes everything that may be secret, and nothing that decides about devices."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.configuration import configuration_in_force
from analysis.redaction import Redaction, redaction_of
from tests import shapes
from tests.cli.commands.secret_pod import LIMITS, SECRET, pod_with
from tests.cli.running import run, run_json
from tests.draws import draws
from webhook.state.configuration import DEFAULT as FILE
from webhook.state.configuration import Configuration

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
DEFAULT = Configuration(FILE)


def redacted(obj, *, reads=()):
    """Return the redacted object, and the number of values that are left out. The values of known variables are kept."""
    redaction = Redaction(lambda name: name in reads, lambda key: key.startswith(("hami.io/", "nvidia.com/")))
    return redaction.redact(obj), redaction.left_out


HIDDEN = {
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


@pytest.mark.parametrize("place", HIDDEN)
def test_values_that_may_be_secret_are_redacted_at_any_depth(place):
    deep = {"kind": "RayCluster", "spec": {"groups": [{"template": {"spec": {"containers": [HIDDEN[place]]}}}]}}
    made, left_out = redacted(deep)
    assert SECRET not in json.dumps(made)
    assert left_out >= 1
    assert SECRET in json.dumps(deep), "redaction changed the object that it was given"


def test_the_last_applied_annotation_and_managed_fields_are_left_out():
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET}), "example.com/unknown": "x"}
    made, _ = redacted({"metadata": {"annotations": applied, "managedFields": [{"manager": SECRET}]}})
    assert made == {"metadata": {"annotations": {}}}


@pytest.mark.parametrize(
    "free",
    [
        {"kubernetes.io/change-cause": SECRET},
        {"deprecated.kubernetes.io/note": f"kubectl set env deploy/a PASSWORD={SECRET}"},
        {"csi.volume.kubernetes.io/nodeid": json.dumps({"a": SECRET})},
        {"nginx.ingress.kubernetes.io/snippet": f"{SECRET}\n"},
        {"scheduler.alpha.kubernetes.io/long": SECRET * 64},
    ],
)
def test_free_text_in_kubernetes_annotations_is_left_out(free):
    kept_annotations = {"resource.kubernetes.io/pod-claim-name": "gpu", "kubernetes.io/config.source": "api", "drawbridge.dev/templates": '{"a": "b"}'}  # fmt: skip
    made, left_out = redacted({"kind": "RayCluster", "metadata": {"annotations": kept_annotations | free}})
    assert made["metadata"] == {"annotations": kept_annotations}
    assert left_out == 1


def test_a_dialects_kubernetes_io_key_admits_no_other_annotations():
    """Koordinator reads kubernetes.io/gpu, so kubernetes.io is the domain of a dialect."""
    read = {
        "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,1,2:;",
        "nvidia.com/use-gputype": "A100, or any",
        "kubernetes.io/word": "any",
    }
    free = {"kubernetes.io/change-cause": SECRET, "kubernetes.io/description": SECRET, "kubernetes.io/a": f"{SECRET} b", "nvidia.com/note": f"--{SECRET} {SECRET}"}  # fmt: skip
    made = redaction_of(DEFAULT).redact(pod_with() | {"metadata": {"name": "p", "annotations": read | free}})
    assert made["metadata"]["annotations"].keys() & (read.keys() | free.keys()) == read.keys()


def test_redaction_keeps_the_fields_that_decide_and_env_secret_references():
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
    made, left_out = redacted(obj, reads=("NVIDIA_VISIBLE_DEVICES",))
    assert made == {"metadata": obj["metadata"], "spec": {"containers": spec["containers"]}}
    assert left_out == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["env", "name", "value", "args", "metadata", "annotations", "a"]), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=draws(200), deadline=None)
@given(obj=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind", "env"]), JSON))
def test_redaction_accepts_any_object_and_is_idempotent(obj):
    made, left_out = redacted(obj)
    assert left_out >= 0
    again, _ = redacted(made)
    assert again == made


OURS = ("DeviceInventory", "DrawbridgeConfiguration", "Workload", "List")  # no cluster stores objects of these kinds
# By command: the parts of its answer that redaction must not change.
QUESTIONS = {
    "translate": ("decisions",),
    "survey": ("workloads",),
    "check": ("findings",),
    "simulate": ("pods", "totals"),
    "doctor": ("findings",),
    "quota": ("quotas",),
}
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and any(path.rglob("*.yaml")))


@pytest.mark.parametrize("folder", FOLDERS)
def test_redaction_changes_no_answer_about_an_example(folder, tmp_path):
    from cluster.manifests import read_leniently

    documents, _ = read_leniently([str(EXAMPLES / folder)])
    objects = [document.object for document in documents]
    redaction = redaction_of(configuration_in_force(None, documents).configuration)
    bare = [obj if obj.get("kind") in OURS else redaction.redact(obj) for obj in objects]
    bare = [json.loads(line) for line in redaction.finish(json.dumps(obj).encode() for obj in bare)]
    pods = [obj for obj in objects if obj.get("kind") == "Pod"][:3]
    file = tmp_path / "given.json"
    answers = []
    for items in (objects, bare):
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        results = {}
        for command, names in QUESTIONS.items():
            code, answer = run_json(command, "-f", file)
            results[command] = [code, *(comparable(command, answer.get(name)) for name in names)]
        for stored in pods:
            name = f"{stored['metadata'].get('namespace', 'default')}/{stored['metadata'].get('name')}"
            results[name] = run("explain", f"pod/{name}", "-f", file).stdout
        around = (
            "--inventory",
            file,
            *(part for path in sorted((EXAMPLES / folder).rglob("*.yaml"))[:3] for part in ("-f", path)),
        )
        results["inventory"] = [run(command, *around).stdout for command in ("check", "translate")]
        answers.append(results)
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


MARK = "m4rk3d"


def marked(value, draw):
    """A copy of the object with an unknown field in a random mapping of the object."""
    value = json.loads(json.dumps(value))
    places = [value]
    for place in places:
        inner = place.items() if isinstance(place, dict) else enumerate(place)
        # In these mappings, any name is a label and not an unknown field.
        places += [
            member
            for name, member in inner
            if isinstance(member, dict | list) and name not in ("matchLabels", "nodeSelector")
        ]
    around = draw.choice([place for place in places if isinstance(place, dict) and not _is_map(place)])
    shape = draw.choice((MARK, [MARK], {"a": MARK}, [{"name": MARK}], {"value": MARK}, {MARK: MARK}))
    around[draw.choice(("unknown", "secretKey", "options", "message", "workingDir", "x-y"))] = shape
    return value


def _is_map(value):
    """Return whether a mapping may have any keys: amounts by resource, labels, attributes by name."""
    return any("/" in name or "." in name or name in ("cpu", "memory") for name in value) or not value


def test_an_unknown_field_is_dropped_wherever_it_appears():
    draw = random.Random("members")
    redaction = redaction_of(DEFAULT)
    every = [obj for kind, objects in shapes.examples().items() if kind not in OURS for obj in objects]
    for _ in range(3000):
        obj = marked(draw.choice(every), draw)
        [line] = redaction.finish([json.dumps(redaction.redact(obj)).encode()])
        assert MARK not in line.decode(), obj
