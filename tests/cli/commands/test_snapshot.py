"""`drawbridge snapshot`: everything that decides about devices, nothing that is secret, and a file that is whole or not there."""

import json
import random
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.configuration import configuration_in_force
from analysis.redaction import Redaction, redaction_of
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.kubernetes import Kubernetes
from cluster.protocol import ListPage
from tests import shapes
from tests.cli.running import run, run_json
from tests.corpus.move.autoscaled import pool, scaler
from tests.corpus.move.plugins import CHART, config_map, daemon_set, device_config, policy, sharing
from tests.draws import draws
from tests.objects import container, pod
from tests.webhook.service.test_evidence import HOME, Installed
from webhook.state.configuration import DEFAULT as FILE
from webhook.state.configuration import Configuration

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
SECRET = "hunter2"
DEFAULT = Configuration(FILE)
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}


def pod_with(name="p", **fields):
    """A pod whose container has these fields."""
    return pod(name, namespace="team-a", containers=[container(limits=LIMITS) | fields])


@pytest.fixture
def given_cluster(monkeypatch, tmp_path):
    """Say what is in the cluster that the command finds; the file that it is to write."""

    def give(*objects, cluster=Embedded):
        monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster.holding(objects))
        return tmp_path / "snapshot.json"

    return give


def written(file):
    """What a file has, but for the namespaces that every cluster has."""
    items = json.loads(file.read_text())["items"]
    return [item for item in items if item["kind"] != "Namespace"]


def test_a_written_snapshot_is_surveyed_like_the_live_cluster(given_cluster):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    file = given_cluster(node, pod_with("a"), pod_with("b", env=[{"name": "TOKEN", "value": SECRET}]))
    live = run_json("survey")
    assert run("snapshot", "--to", file).exit_code == 0
    replayed = run_json("survey", "-f", file)
    workloads = [[(workload["name"], workload["outcome"], [key["detail"] for key in workload["keys"]]) for workload in answer["workloads"]]
            for _, answer in (live, replayed)]  # fmt: skip
    assert workloads[0] == workloads[1]
    assert len(workloads[0]) == 2


def test_the_answer_says_what_there_is(given_cluster):
    file = given_cluster(pod_with(args=["--password", SECRET], env=[{"name": "A", "value": SECRET}]))
    code, answer = run_json("snapshot", "--to", file)
    assert code == 0
    objects = len(json.loads(file.read_text())["items"])
    assert (answer["objects"], answer["unread"]) == (objects, [])
    assert answer["leftOut"] >= 3  # two arguments and the value of a variable
    assert answer["bytes"] == file.stat().st_size
    assert f"{objects} objects " in run("snapshot", "--to", file, "--force").stdout


def test_the_snapshot_file_is_readable_by_its_owner_only(given_cluster):
    file = given_cluster(pod_with())
    run("snapshot", "--to", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["there", "folder", "nowhere", "-"])
def test_a_bad_target_is_told_before_anything_is_read(what, tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.write_text("older")
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: pytest.fail("it was read"))
    target = {"there": there, "folder": tmp_path, "nowhere": tmp_path / "no" / "x", "-": "-"}[what]
    result = run("snapshot", "--to", target)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert there.read_text() == "older"


def test_an_older_file_is_replaced_with_the_option(given_cluster):
    file = given_cluster(pod_with())
    file.write_text("older")
    assert run("snapshot", "--to", file, "--force").exit_code == 0
    assert len(written(file)) == 1


def test_a_cluster_that_breaks_off_leaves_the_older_file_and_nothing_else(given_cluster):
    class Breaks(Embedded):
        async def list(self, resource, namespace=None, **more):
            if resource.plural == "pods":
                raise ConnectionError("gone")
            return await super().list(resource, namespace, **more)

    file = given_cluster(pod_with(), cluster=Breaks)
    file.write_text("older")
    assert run("snapshot", "--to", file, "--force").exit_code != 0
    assert [(path.name, path.read_text()) for path in file.parent.iterdir()] == [(file.name, "older")]


def test_a_full_disk_is_told_and_leaves_nothing(given_cluster, monkeypatch):
    file = given_cluster(pod_with())

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("analysis.saved.os.fsync", full)
    result = run("snapshot", "--to", file)
    assert result.exit_code == 3
    assert "No space left on device" in result.stderr
    assert list(file.parent.iterdir()) == []


def test_an_unreadable_resource_is_named_and_the_rest_is_written(given_cluster):
    class Narrow(Embedded):
        async def list(self, resource, namespace=None, **more):
            if resource.plural == "leases":
                raise Forbidden('leases is forbidden: User "x" cannot list')
            return await super().list(resource, namespace, **more)

    file = given_cluster(pod_with(), cluster=Narrow)
    result = run("snapshot", "--to", file)
    assert result.exit_code == 3
    assert "warning: not read: leases.coordination.k8s.io: leases is forbidden" in result.stderr
    assert len(written(file)) == 1


def test_one_namespace_is_written_alone(given_cluster):
    other = pod_with("other")
    other["metadata"]["namespace"] = "team-b"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    file = given_cluster(pod_with(), other, node)
    run("snapshot", "--to", file, "-n", "team-b")
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in written(file)} == {("Pod", "other"), ("Node", "n")}


# ---- what is secret


def redacted(obj, *, reads=()):
    redaction = Redaction(lambda name: name in reads, lambda key: key.startswith(("hami.io/", "nvidia.com/")))
    return redaction.redact(obj), redaction.left_out


HIDDEN = {
    "a variable": {"env": [{"name": "A", "value": SECRET}]},
    "a command": {"command": ["sh", "-c", SECRET]},
    "arguments": {"args": ["--token", SECRET]},
    "a hook": {"lifecycle": {"postStart": {"exec": {"command": [SECRET]}}}},
    "a probe": {"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}},
    "a variable of another kind's": {"environment": {"A": SECRET}},
    "a variable that is called a key": {"envs": [{"key": "A", "value": SECRET}]},
    "a password": {"redis-password": SECRET},
    "a token": {"hfToken": SECRET},
    "a key": {"apiKey": SECRET},
}


@pytest.mark.parametrize("what", HIDDEN)
def test_values_that_may_be_secret_are_redacted_at_any_depth(what):
    deep = {"kind": "RayCluster", "spec": {"groups": [{"template": {"spec": {"containers": [HIDDEN[what]]}}}]}}
    made, left_out = redacted(deep)
    assert SECRET not in json.dumps(made)
    assert left_out >= 1
    assert SECRET in json.dumps(deep), "the caller's object stays as it is"


def test_the_last_applied_annotation_and_managed_fields_are_left_out():
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET}), "other": "stays"}
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
def test_of_annotations_of_kubernetes_free_text_is_left_out(free):
    kept_annotations = {"resource.kubernetes.io/pod-claim-name": "gpu", "kubernetes.io/config.source": "api", "drawbridge.dev/templates": '{"a": "b"}'}  # fmt: skip
    made, left_out = redacted({"kind": "RayCluster", "metadata": {"annotations": kept_annotations | free}})
    assert made["metadata"] == {"annotations": kept_annotations}
    assert left_out == 1


def test_a_dialect_that_has_names_of_kubernetes_lets_no_free_text_of_the_same_domain_in():
    """Koordinator reads kubernetes.io/gpu, and Volcano's annotations are read by name."""
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


def test_the_variables_that_a_dialect_reads_are_written(given_cluster):
    read = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    file = given_cluster(pod_with(env=[read, {"name": "B", "value": SECRET}]))
    run("snapshot", "--to", file)
    [obj] = written(file)
    assert obj["spec"]["containers"][0]["env"] == [read, {"name": "B"}]


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


OURS = ("DeviceInventory", "DrawbridgeConfiguration", "Workload", "List")  # files, which no cluster has
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
def test_examples_are_decided_equally_with_and_without_what_was_left_out(folder, tmp_path):
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
            results[command] = [code, *(_told(command, answer.get(name)) for name in names)]
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


def _told(command, answer):
    """Findings without their places; those about fields that are gone, or were wrong from the beginning, apart."""
    if command != "check":
        return answer
    return [
        (finding["code"], finding["object"], finding["message"])
        for finding in answer
        if finding["code"] not in ("D002", "D001")
    ]


MARK = "m4rk3d"


def marked(value, draw):
    """Return a copy with an unknown field in one of its mappings, and the depth of that field."""
    value = json.loads(json.dumps(value))
    places = [value]
    for place in places:
        inner = place.items() if isinstance(place, dict) else enumerate(place)
        # A label may have any name.
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
    """Whether any name is allowed in it: amounts by resource, labels, selectors by label, attributes by name."""
    return any("/" in name or "." in name or name in ("cpu", "memory") for name in value) or not value


def test_an_unknown_field_is_dropped_wherever_it_appears():
    draw = random.Random("members")
    redaction = redaction_of(DEFAULT)
    every = [obj for kind, objects in shapes.examples().items() if kind not in OURS for obj in objects]
    for _ in range(3000):
        obj = marked(draw.choice(every), draw)
        [line] = redaction.finish([json.dumps(redaction.redact(obj)).encode()])
        assert MARK not in line.decode(), obj


def test_device_plugins_and_autoscalers_stay_as_far_as_they_are_read(monkeypatch, tmp_path):
    cluster = Installed()
    secret = {"name": "TOKEN", "value": SECRET}
    there = scaler("1.31.0", f"--token={SECRET}") | {"metadata": {"name": "scaler", "namespace": HOME}}
    there["spec"]["template"]["spec"]["containers"][0]["env"] = [secret]
    cluster.there = [pool(), policy(), config_map(any=sharing(), other=SECRET), CHART, there]
    cluster.there += [
        obj | {"metadata": {"name": "fake", "namespace": "team-a"}} for obj in (there, config_map(any=sharing(8)))
    ]
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    file = tmp_path / "snapshot.json"
    assert run("snapshot", "--to", file).exit_code == 0
    assert SECRET not in file.read_text()
    _, live = run_json("survey")
    _, replayed = run_json("survey", "-f", file)
    obstacles = [
        {(finding["object"], finding["message"]) for finding in answer["obstacles"]} for answer in (live, replayed)
    ]
    of_both = {obstacle for obstacle in obstacles[0] if obstacle[0] != "DrawbridgeConfiguration"}
    assert of_both <= obstacles[1]
    assert {name.partition(" (")[0] for name, _ in of_both} >= {
        f"ConfigMap/{HOME}/plugin",
        f"Deployment/{HOME}/scaler",
        "Karpenter",
    }
    assert not any("fake" in name for name, _ in obstacles[0] | obstacles[1])


def test_an_operator_and_the_device_plugin_that_it_owns_are_told_once_by_a_snapshot(given_cluster):
    owner = {
        "apiVersion": "amd.com/v1alpha1",
        "kind": "DeviceConfig",
        "name": "default",
        "uid": "u",
        "controller": True,
    }
    config = device_config(driver=True)
    plugin = daemon_set("rocm/k8s-device-plugin", "default-device-plugin")
    plugin["metadata"]["ownerReferences"] = [owner]
    folder = {"name": "kubelet", "hostPath": {"path": f"/var/lib/kubelet/device-plugins/{SECRET}"}}
    plugin["spec"]["template"]["spec"]["volumes"] = [folder, {"name": SECRET, "hostPath": {"path": f"/{SECRET}"}}]
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "deviceconfigs.amd.com"},
        "spec": {
            "group": "amd.com",
            "names": {"kind": "DeviceConfig", "plural": "deviceconfigs"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": True, "storage": True}],
        },
    }

    class WithOperator(Embedded):
        async def list(self, resource, namespace=None, **more):
            if resource.plural == "deviceconfigs":
                return ListPage((config,), "1")
            return await super().list(resource, namespace, **more)

    file = given_cluster(plugin, definition, cluster=WithOperator)
    live = run_json("survey")[1]["obstacles"]
    assert run("snapshot", "--to", file).exit_code == 0
    assert [obj["kind"] for obj in written(file)].count("DeviceConfig") == 1
    assert SECRET not in file.read_text()
    replayed = run_json("survey", "-f", file)[1]["obstacles"]
    assert live == replayed
    named = [finding["object"] for finding in live if finding["code"] != "S010"]
    assert named == ["DaemonSet/gpu-operator/default-device-plugin", "DeviceConfig/kube-amd-gpu/default"]
