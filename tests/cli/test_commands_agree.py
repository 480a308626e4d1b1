"""Every command that is asked about an object gives the same answer as the others (`tests/agreement.py`)."""

import json
import random

import pytest

from analysis.explain.stories import Keeper
from cluster import manifests
from tests import draws
from tests.agreement import (
    CLUSTER,
    COMMANDS,
    OTHERS,
    Scene,
    as_list,
    ask,
    asked,
    contradictions,
    demo,
    explain,
    files,
    simulate,
    survey,
    translate,
)
from tests.cli.running import run
from tests.corpus import move
from tests.corpus.move import GPU, asking, moved, node
from tests.webhook.pods import EXAMPLES
from webhook.dialects import Position
from webhook.names import MODE_LABEL
from webhook.state import Configuration

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "c"}}
WHOLE = HEAD | {"meanings": {GPU: "whole"}}
CLAIMED = HEAD | {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}
FPGA = "example.com/fpga"


def apart(around):
    """Part objects into the nodes and classes, and the others."""
    parts = [], []
    for obj in around:
        parts[obj["kind"] in CLUSTER].append(obj)
    return parts


# ---- Objects that are there


def cases():
    for kind, table in move.tables().items():
        for case in table:
            around, fleet = apart(case.around)
            configuration = HEAD | dict(case.configuration) if case.configuration else None
            yield pytest.param(Scene(case.given, around, fleet, configuration, case.minor), id=f"{kind}: {case.name}")


def examples():
    fleet = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        objects = [document.object for document in manifests.read([str(path)]) if "kind" in document.object]
        asking = [obj for obj in objects if '"containers"' in json.dumps(obj) and obj["kind"] != "DaemonSet"]
        around, nodes = apart(obj for obj in objects if obj not in asking)
        for number, obj in enumerate(asking):
            yield pytest.param(Scene(obj, around, nodes or fleet), id=f"{path.relative_to(EXAMPLES)} {number}")


@pytest.mark.parametrize("scene", [*cases(), *examples()])
def test_the_commands_agree_about_what_is_there(scene, tmp_path):
    assert not contradictions(ask(scene, tmp_path))


# ---- Drawn objects

ROWS = [row for dialect in Configuration().dialects for row in dialect.keys if "<" not in row.name]
KEYS = sorted({row.name for row in ROWS if row.place is Position.RESOURCE})
ANNOTATIONS = sorted({row.name for row in ROWS if row.place is Position.ANNOTATION})
WARNED = HEAD | {"impossible": "warn"}
CONFIGURATIONS = (
    *(None, None, HEAD, WHOLE, CLAIMED, WARNED),
    *(HEAD | {"approximations": "leave"}, HEAD | {"unresolved": "refuse"}),
)
AMOUNTS = ("1",) * 12 + ("2", "4", "4", "100", "0", "500m")


def job(template):
    return {"template": template | {"spec": {"restartPolicy": "Never"} | template["spec"]}}


KINDS = {
    ("v1", "Pod"): lambda template: template["spec"],
    ("apps/v1", "Deployment"): lambda template: {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    ("batch/v1", "Job"): job,
    ("batch/v1", "CronJob"): lambda template: {"schedule": "0 0 * * *", "jobTemplate": {"spec": job(template)}},
    ("ray.io/v1", "RayCluster"): lambda template: {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}},
        "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "rayStartParams": {}, "template": template}],
    },
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): lambda template: {
        "replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": job(template)}}]
    },
    ("kubeflow.org/v1", "Notebook"): lambda template: {"template": template},
    ("example.com/v1", "Training"): lambda template: {"template": template},
}


def of_kind(version, kind, template, **metadata):
    """Write an object whose pods have this template."""
    own = template["metadata"] if kind == "Pod" else {}
    metadata = {"name": "w", "namespace": "n"} | own | metadata
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": KINDS[version, kind](template)}


def having(*nodes):
    """Let nodes report what they have, so that they have no other keys."""
    return [obj | {"status": {"allocatable": {"cpu": "8"}}} if obj.get("kind") == "Node" else obj for obj in nodes]


FLEET = having(*moved("a", "b"))


def drawn(number):
    """Draw an object, the nodes, a mode and a configuration."""
    draw = random.Random(number)

    def seldom(value, share=0.1):
        return value if draw.random() < share else {}

    keys = draw.sample(KEYS, draw.choice((1, 1, 2, 3)))
    keys = [*draw.choice((keys, [GPU, *keys[1:]])), *seldom([FPGA], 0.15)]
    containers = []
    for name in ("c0", "c1")[: draw.choice((1, 1, 2))]:
        amounts = {key: draw.choice(AMOUNTS) for key in draw.sample(keys, draw.randint(1, len(keys)))}
        parts = draw.choice((("limits",), ("limits",), ("limits", "requests"), ("requests",)))
        containers.append({"name": name, "image": "i", "resources": dict.fromkeys(parts, amounts)})
    if seldom([1]):
        containers[0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    spec = {"containers": containers}
    spec |= seldom({"nodeName": "a"}) | seldom({"nodeSelector": {"pool": "x"}}) | seldom({"schedulerName": "volcano"})
    spec |= seldom({"resources": {"limits": {keys[0]: "1"}}})
    labels = {"a": "b"} | seldom({"kueue.x-k8s.io/queue-name": "q"})
    template = {"metadata": {"labels": labels}, "spec": spec}
    template["metadata"] |= seldom({"annotations": {draw.choice(ANNOTATIONS): draw.choice(("1", "50", "a"))}}, 0.25)
    plugins = [node(name, **{key: draw.choice((1, 4)) for key in keys}) for name in ("p", "q")]
    fleet = draw.choice(((), plugins, FLEET, (*FLEET, *plugins), having(*moved("a", "b", extended=GPU))))
    configuration, around = draw.choice(CONFIGURATIONS), []
    mode = draw.choice(("enforce", "observe", "warn", "off"))
    source = draw.choice(("", "", "label", "object", "option"))
    if source == "label":
        around.append(namespace(mode))
    elif source:
        configuration = (configuration or HEAD) | {"mode": mode}
    if source == "object":
        around, configuration = [configuration], None
    given = of_kind(*draw.choice((("v1", "Pod"), *KINDS)), template, labels=labels)
    return Scene(given, around, fleet, configuration, draw.choice((0, 0, 0, 34, 36)))


def namespace(mode):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {MODE_LABEL: mode}}}


def commands_of(number):
    """List the commands that are asked about a draw: one of the servers and forms, or all of them where all is drawn."""
    return (*COMMANDS, *(OTHERS if draws.ALL else OTHERS[number % len(OTHERS) :][:1]))


@pytest.mark.parametrize("number", range(draws.draws(240)))
def test_the_commands_agree_about_what_is_drawn(number, tmp_path):
    assert not contradictions(ask(drawn(number), tmp_path, commands_of(number)))


# ---- Drawn again, with what the first draws do not have: other amounts, kinds with several templates or a scheduler, other fleets

WIDE_AMOUNTS = ("1",) * 5 + ("0", None, "${N}", "1k", 2, "500m")
WIDE_KINDS = {
    ("v1", "Pod"): lambda template: template["spec"],
    ("apps/v1", "StatefulSet"): lambda template: {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    ("batch.volcano.sh/v1alpha1", "Job"): lambda template: {"tasks": [{"replicas": 1, "template": template}]},
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): lambda template: {
        "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template, "workerTemplate": template}
    },
    ("kubeflow.org/v1", "PyTorchJob"): lambda template: {
        "pytorchReplicaSpecs": {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    },
    ("ray.io/v1", "RayCluster"): KINDS["ray.io/v1", "RayCluster"],
    ("example.com/v1", "Training"): lambda template: {"template": template},
}
PLUGINS = (node("p", gpu=4, **{FPGA: 4}), node("q", {"pool": "x"}, gpu=2))
WIDE_FLEETS = (
    (),
    FLEET,
    (*FLEET, *PLUGINS),
    (*having(*moved("a", extended=GPU)), *PLUGINS),
    PLUGINS,
)


def drawn_again(number):
    draw = random.Random(f"again {number}")
    keys = draw.choice(([GPU], [GPU], [GPU, FPGA], [GPU, "nvidia.com/gpumem"], draw.sample(KEYS, 2)))
    containers = []
    for name in ("c", "d")[: draw.choice((1, 2))]:
        amounts = {key: draw.choice(WIDE_AMOUNTS) for key in keys}
        parts = draw.choice((("limits",), ("limits",), ("limits",), ("limits", "requests"), ("requests",)))
        containers.append({"name": name, "image": "i", "resources": dict.fromkeys(parts, amounts)})
    spec = {"containers": containers}
    spec |= draw.choice(({}, {}, {}, {"nodeSelector": {"pool": "x"}}, {"resources": {"limits": {GPU: "1"}}}))
    version, kind = draw.choice(tuple(WIDE_KINDS))
    made = WIDE_KINDS[version, kind]({"metadata": {"labels": {"a": "b"}}, "spec": spec})
    given = {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "namespace": "n"}, "spec": made}
    around = [namespace(draw.choice(("enforce", "observe", "warn", "off")))] if draw.random() < 0.4 else []
    return Scene(given, around, draw.choice(WIDE_FLEETS), draw.choice(CONFIGURATIONS), draw.choice((0, 0, 34)))


@pytest.mark.parametrize("number", range(draws.draws(240)))
def test_the_commands_agree_about_what_is_drawn_again(number, tmp_path):
    assert not contradictions(ask(drawn_again(number), tmp_path, commands_of(number)))


# ---- One example of each contradiction that there was


def pods_with(limits, **spec):
    return {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]} | spec}


def limits(**amounts):
    return {"limits": {GPU if key == "gpu" else FPGA: amount for key, amount in amounts.items()}}


QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
POD, JOB, RAY_CLUSTER, JOBSET, TRAINING = (
    row for row in KINDS if row[1] in ("Pod", "Job", "RayCluster", "JobSet", "Training")
)
ONE, BOTH = pods_with(limits(gpu="1")), pods_with(limits(gpu="1", fpga="1"))
EMPTY, MOVED, SERVED = having(node("a")), having(*moved("a")), having(*moved("a", extended=GPU))
AWAY = pods_with(limits(gpu="1"), nodeSelector={"pool": "x"})
OWN = {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
# A key that a DeviceClass serves, and beside it one for which claims are made of a class that no node has.
SERVED_AND_NOT = pods_with(limits(gpu="1"))
SERVED_AND_NOT["spec"]["initContainers"] = [
    {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}
]
# A container with whole devices, and one with a key that Koordinator sums up over the pod.
HALVES = pods_with(limits(gpu="1"))
HALVES["spec"]["containers"].append(
    {"name": "d", "image": "i", "resources": {"limits": {"huawei.com/npu-core": "100"}}}
)
EXAMPLE_FLEET = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
IN_POD, UNFILLED = pods_with({}, resources=limits(gpu="1")), pods_with(limits(gpu="${GPUS}"))
AT_X = node("x", {"pool": "x"})
# A scene; the outcome and a code that translate gives; whether simulate finds a node.
NAMED = {
    "a plugin's key that no node has": (Scene(of_kind(*POD, ONE), (), EMPTY), "left", "D222", False),
    "a key that no dialect has": (Scene(of_kind(*POD, pods_with(limits(fpga="1")))), "unknown", "D211", False),
    "a label that no node has": (Scene(of_kind(*POD, AWAY), (), MOVED, WHOLE), "translated", "D212", False),
    "a mode whose namespace stands after the pod": (
        Scene(of_kind(*POD, ONE), [namespace("off")], MOVED, WHOLE),
        "left",
        "",
        False,
    ),
    "a mode that is not a text": (Scene(of_kind(*POD, ONE), [namespace(False)], MOVED, WHOLE), "left", "", False),
    "a namespace in the fleet, its mode not a text": (
        Scene(of_kind(*POD, ONE), (), [*MOVED, namespace(False)], WHOLE),
        "left",
        "",
        False,
    ),
    "a served key beside one that no node has, in mode off": (
        Scene(
            of_kind(*POD, pods_with({"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}})),
            [namespace("off")],
            SERVED,
            WHOLE,
        ),
        "left",
        "",
        False,
    ),
    "a served key, in mode off": (Scene(of_kind(*POD, ONE), [namespace("off")], SERVED, WHOLE), "left", "", True),
    "a key that nodes have, which the pod cannot run on": (
        Scene(
            of_kind(*POD, pods_with(limits(fpga="1"), nodeSelector={"pool": "x"})), (), (node("b", **{FPGA: 1}), AT_X)
        ),
        "left",
        "D221",
        False,
    ),
    "an amount of 0 of a key that only other nodes have": (
        Scene(
            of_kind(*POD, pods_with(limits(fpga="0"), nodeSelector={"pool": "x"})), (), (node("b", **{FPGA: 1}), AT_X)
        ),
        "left",
        "",
        True,
    ),
    "half a device": (Scene(of_kind(*POD, pods_with(limits(gpu="500m")))), "refused", "R001", None),
    "a share of a size that nothing tells": (
        Scene(
            of_kind(*POD, pods_with({"limits": {"koordinator.sh/gpu": "1"}})), (), (), HEAD | {"unresolved": "refuse"}
        ),
        "refused",
        "R006",
        None,
    ),
    "no limit": (Scene(of_kind(*POD, pods_with({"requests": {GPU: "1"}}))), "refused", "R001", None),
    "a part of the keys": (Scene(of_kind(*POD, BOTH), (), MOVED, WHOLE), "partly", "D211", False),
    "a key of the pod's sum that stays": (
        Scene(of_kind(*POD, HALVES), (), MOVED, WHOLE),
        "partly",
        "",
        False,
    ),
    "served by name": (Scene(of_kind(*POD, ONE), (), SERVED), "served", "", True),
    "a key beside a served one": (Scene(of_kind(*POD, BOTH), (), [*SERVED, node("b", **{FPGA: 1})]), "left", "", False),
    "keys that one node has, by plugins": (
        Scene(of_kind(*POD, BOTH), (), [*SERVED, node("b", gpu=1, **{FPGA: 1})]),
        "left",
        "",
        True,
    ),
    "an unknown kind": (Scene(of_kind(*TRAINING, ONE), (), MOVED, WHOLE), "translated", "", True),
    "keys that Kueue counts": (Scene(of_kind(*JOB, ONE, labels=QUEUED), (), MOVED, WHOLE), "translated", "", True),
    "half a device in an unknown kind": (
        Scene(of_kind(*TRAINING, pods_with(limits(gpu="500m"))), [namespace("observe")]),
        "refused",
        "R001",
        None,
    ),
    "requests of a pod in a JobSet": (Scene(of_kind(*JOBSET, IN_POD)), "refused", "R001", None),
    "an amount that is no quantity": (
        Scene(of_kind(*POD, pods_with(limits(gpu="abc"))), (), MOVED, WHOLE),
        "refused",
        "D001",
        None,
    ),
    "an amount that is no quantity, on a node that is named": (
        Scene(of_kind(*POD, pods_with(limits(gpu="abc"), nodeName="a")), (), MOVED),
        "refused",
        "D001",
        None,
    ),
    "an amount that is no quantity, in a workload": (
        Scene(of_kind(*JOB, pods_with(limits(gpu="abc"))), (), MOVED, WHOLE),
        "refused",
        "D001",
        None,
    ),
    "a placeholder beside a refused key": (
        Scene(
            of_kind(*POD, pods_with({"limits": {"koordinator.sh/gpu": "1", "vpc.amazonaws.com/pod-eni": "${N}"}})),
            (),
            (),
            HEAD | {"unresolved": "refuse"},
        ),
        "refused",
        "D011",
        None,
    ),
    "a placeholder": (Scene(of_kind(*POD, UNFILLED)), "unknown", "D011", False),
    "a misspelt key with a placeholder": (
        Scene(of_kind(*POD, pods_with({"limits": {"nvdia.com/gpu": "${GPUS}"}}))),
        "unknown",
        "D211",
        False,
    ),
    "own claims, and a label that no node has": (
        Scene(of_kind(*JOB, pods_with({}, nodeSelector={"pool": "x"}, **OWN)), (), MOVED),
        "left",
        "D212",
        False,
    ),
    "served beside claims that no node could serve, in a template that stays": (
        Scene(of_kind(*RAY_CLUSTER, SERVED_AND_NOT), (), EXAMPLE_FLEET),
        "refused",
        "R020",
        None,
    ),
    "a node that is named": (
        Scene(of_kind(*POD, pods_with(limits(gpu="9"), nodeName="a")), (), MOVED, WHOLE),
        "left",
        "",
        None,
    ),
    "more devices than a claim can hold, which is only warned of": (
        Scene(of_kind(*POD, pods_with(limits(gpu="100"))), (), SERVED, WARNED),
        "served",
        "R023",
        False,
    ),
    "more devices than a claim can hold, warned of at the webhook": (
        Scene(of_kind(*RAY_CLUSTER, pods_with(limits(gpu="100"))), (), MOVED, WHOLE | WARNED),
        "translated",
        "R023",
        None,
    ),
    "null": (Scene(of_kind(*POD, pods_with(limits(gpu=None))), (), EMPTY), "silent", "", True),
    "an amount of 0": (Scene(of_kind(*POD, pods_with(limits(gpu="0"))), (), EMPTY), "silent", "", True),
    "an amount of 0 of a key that a claim never replaces": (
        Scene(of_kind(*POD, pods_with({"limits": {"gpu.intel.com/i915_monitoring": "0"}})), (), EMPTY),
        "silent",
        "",
        True,
    ),
    "an amount of 0 of a key that stays with its device plugin": (
        Scene(of_kind(*POD, pods_with({"limits": {"kunlunxin.com/vxpu-memory": "0"}})), (), EMPTY),
        "silent",
        "",
        True,
    ),
    "a misspelt key with an amount of 0": (
        Scene(of_kind(*POD, pods_with({"limits": {"nvidia.com/gpus": "0"}})), (), EMPTY),
        "unknown",
        "D211",
        True,
    ),
    "an amount of 0 beside a key that stays": (
        Scene(
            of_kind(*POD, pods_with({"limits": {"koordinator.sh/fpga": None, FPGA: "1"}})),
            (),
            (node("b", **{FPGA: 1}),),
        ),
        "left",
        "",
        True,
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_commands_agree_about_each_example(name, tmp_path):
    scene, outcome, code, fits = NAMED[name]
    answers = ask(scene, tmp_path, (*COMMANDS, demo) if scene.fleet and scene.object["kind"] == "Pod" else COMMANDS)
    assert answers["translate"].outcome == outcome, answers["translate"]
    assert {code} - {""} <= answers["translate"].codes, answers["translate"]
    assert answers["simulate"].fits is fits, answers["simulate"]
    assert not contradictions(answers)
    counted = f"1 {outcome}, 0 without" if outcome != "silent" else "rewritten: 1 without"
    assert counted in last_line_of_report(scene, tmp_path)


def last_line_of_report(scene, folder):
    """Run translate -o report on the object alone, with the others as inventory."""
    (folder / "object.json").write_text(as_list([scene.object]))
    (folder / "around.json").write_text(as_list([*scene.around, *scene.fleet]))
    options = ["--config", folder / "configuration.yaml"] if scene.configuration else []
    given = ["-f", folder / "object.json", "--inventory", folder / "around.json"]
    return run("translate", *given, *options, "-o", "report").stdout.splitlines()[-1]


def installed(mode, folder):
    """Print the manifests of an installation with this mode."""
    (folder / "installed.yaml").write_text(manifests.dump([WHOLE | {"mode": mode}]))
    printed = run("manifests", "--image", "r.example/d:1", "--config", folder / "installed.yaml").stdout
    return [document.object for document in manifests.parse(printed, "")]


@pytest.mark.parametrize("mode", ["observe", "warn", "off"])
@pytest.mark.parametrize("source", ["label", "object", "installed"])
def test_every_command_applies_the_mode_that_is_in_force(source, mode, tmp_path):
    around = {"label": [namespace(mode)], "object": [WHOLE | {"mode": mode}], "installed": installed(mode, tmp_path)}
    scene = Scene(
        of_kind(*POD, pods_with(limits(gpu="1"))), around[source], moved("a"), WHOLE if source == "label" else None
    )
    answers = ask(scene, tmp_path)
    assert answers["translate"].mode == mode
    assert not contradictions(answers)


def test_the_commands_count_the_same_devices(tmp_path):
    pods = [asking(2, nodeName="p"), asking(1, nodeName="p"), of_kind(*POD, pods_with({"limits": {KUBERNETES: "1"}}))]
    pods[2]["spec"]["nodeName"] = "p"
    for number, obj in enumerate(pods):
        obj["metadata"] |= {"name": f"r{number}", "uid": str(number)}
        obj["status"] = {"phase": "Running"}
    old, new = (json.loads(json.dumps(obj)) for obj in moved("a")[-1:] * 2)
    new["metadata"]["name"], new["spec"]["pool"]["generation"] = "new", 2
    dump = tmp_path / "dump.json"
    dump.write_text(as_list([*moved("a")[:-1], old, new, node("p", gpu=4, **{KUBERNETES: 4}), *pods]))
    survey, nodes = (asked(command, "-f", dump) for command in ("survey", "free"))
    listed = [device for row in nodes["nodes"] for device in row["devices"]]
    held = sum(
        int(amount)
        for listed_device in listed
        if listed_device["state"] == "plugin"
        for holder in listed_device["holders"]
        for amount in holder["share"].values()
    )
    counts = {
        "devices": {
            "survey": sum(driver["devices"] for driver in survey["drivers"]),
            "free": sum(listed_device["state"] != "plugin" for listed_device in listed),
        },
        "in use": {"survey": sum(plugin["moving"] + plugin["staying"] for plugin in survey["plugins"]), "free": held},
    }
    right = {"devices": 8, "in use": 4}
    wrong = {
        f"{what}: {name} {count}, right {right[what]}"
        for what in right
        for name, count in counts[what].items()
        if count != right[what]
    }
    assert not wrong


KUBERNETES = "kubernetes.io/gpu"  # nodes count it, though it is no extended resource
FINDINGS_OF = {"check": "findings", "doctor": "findings", "survey": "obstacles"}


def claim(name, device, pod):
    """Write a claim that a device is allocated to, for a pod that is not there."""
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
    }
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": "a", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
        },
    }


def test_the_commands_find_the_same_claims_and_pods_wrong(tmp_path):
    """A claim of a deleted pod, a claim on a device that is gone, and a pod that was created before the webhook was there."""
    late, runs = of_kind(*POD, ONE, uid="w"), of_kind(*POD, pods_with({}, nodeName="a"), name="runs", uid="runs")
    runs["status"] = {"phase": "Running"}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    late["status"] = {"phase": "Pending", "conditions": [unplaced]}
    loose = claim("loose", "gpu-1", "")
    del loose["status"]["reservedFor"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone", "controller": True}
    loose["metadata"]["ownerReferences"] = [owner]
    dump, config = tmp_path / "dump.json", tmp_path / "configuration.yaml"
    config.write_text(manifests.dump([WHOLE]))
    dump.write_text(
        as_list(
            [
                *MOVED,
                namespace("enforce"),
                claim("stale", "gpu-0", "gone"),
                claim("ghost", "gpu-99", "runs"),
                loose,
                late,
                runs,
            ]
        )
    )
    ill = json.dumps(asked("doctor", "-f", dump, "--config", config)["findings"])
    for name in ("stale", "ghost", "loose"):
        answer = asked("explain", "claim", f"n/{name}", "-f", dump, "--config", config)["claim"]
        wrong = bool(answer["claim"]["remarks"] or answer.get("wrong"))
        assert wrong == (f"n/{name}" in ill), f"explain finds {name} wrong: {wrong}"
    answer = asked("explain", "pod/w", "-n", "n", "-f", dump, "--config", config)["pod"]["standing"]
    pods = asked("simulate", "-f", dump, "--config", config)["pods"]
    assert answer["keeper"] == Keeper.USER
    assert "n/w" in ill
    assert not any(pod["node"] for pod in pods if pod["pod"] == "n/w")


def test_the_commands_read_the_same_files(tmp_path):
    (tmp_path / "pod.yaml").write_text(json.dumps(of_kind(*POD, pods_with(limits(gpu="1")))))
    (tmp_path / "chart.yaml").write_text("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n")
    for command in ("translate", "check", "survey", "simulate", "free", "doctor", "quota"):
        result = run(command, "-f", tmp_path, "-o", "json")
        assert not json.loads(result.stdout).get("errors"), f"a Helm template is an error for {command}"


@pytest.mark.parametrize(("label", "faulty"), [("enforced", True), (False, True), ("warn", False), ("", False)])
def test_the_commands_find_the_same_namespaces_wrong(label, faulty, tmp_path):
    dump = tmp_path / "dump.json"
    dump.write_text(as_list([*installed("enforce", tmp_path), namespace(label), *FLEET, of_kind(*POD, ONE)]))
    listed = {command: asked(command, "-f", dump)[field] for command, field in FINDINGS_OF.items()}
    named = {
        command: {(finding["code"], finding["message"]) for finding in of if finding["object"] == "Namespace/n"}
        for command, of in listed.items()
    }
    assert len(named["check"]) == faulty
    assert named["survey"] == named["check"]
    assert named["doctor"] == named["check"]


def test_the_first_pod_of_a_workload_is_the_one_that_cannot_be_read(tmp_path):
    """The head of a RayCluster fits, and its worker has a placeholder for an amount."""
    answers = ask(Scene(of_kind(*RAY_CLUSTER, UNFILLED), (), EMPTY), tmp_path)
    assert "${GPUS}" in answers["explain"].said
    assert "w-0-0" not in answers["explain"].said.partition("cannot be read")[0]
    assert not contradictions(answers)


COUNTING = {
    "Queue": ("scheduling.volcano.sh/v1beta1", {"capability": {GPU: 2}}),
    "ClusterQueue": (
        "kueue.x-k8s.io/v1beta1",
        {"resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": [{"name": GPU}]}]}]},
    ),
}


@pytest.mark.parametrize("kind", COUNTING)
def test_the_commands_name_the_keys_that_a_queue_counts(kind, tmp_path):
    version, spec = COUNTING[kind]
    queue = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    answers = ask(Scene(queue, (), MOVED), tmp_path, (translate, survey, explain))
    assert answers["translate"].outcome == "left"
    assert {name: result.keys for name, result in answers.items()} == dict.fromkeys(answers, answers["translate"].keys)


def test_the_commands_ask_nothing_for_a_device_plugin(tmp_path):
    spec = {
        "nodeSelector": {"k8s.amazonaws.com/accelerator": "vgpu"},
        "containers": [{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
        "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    plugin = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
        },
    }
    answers = ask(Scene(plugin, (), MOVED), tmp_path, (translate, survey, explain))
    assert {name: result.keys for name, result in answers.items()} == {name: {} for name in answers}


def test_a_pod_goes_where_its_runtime_class_lets_it(tmp_path):
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "r"},
        "handler": "r",
        "scheduling": {"nodeSelector": {"pool": "x"}},
    }
    answers = ask(Scene(of_kind(*POD, pods_with(limits(gpu="1"), runtimeClassName="r")), [runtime], SERVED), tmp_path)
    assert answers["simulate"].fits is False
    assert "before it in the queue" not in answers["explain"].said
    assert not contradictions(answers)


def test_a_pod_of_a_manifest_gets_claims_of_the_templates_beside_it(tmp_path):
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
    }
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    own = pods_with({}, resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}])
    answers = ask(Scene(of_kind(*POD, own), [made], MOVED), tmp_path, (translate, simulate, explain))
    assert (answers["simulate"].fits, answers["explain"].fits) == (True, True)
    own["spec"]["nodeSelector"] = {"pool": "x"}
    answers = ask(Scene(of_kind(*POD, own), [made], MOVED), tmp_path, (translate, simulate, explain))
    assert answers["simulate"].fits is False
    assert "pool=x" in answers["explain"].said


def test_the_error_of_a_pod_names_its_own_claim(tmp_path):
    many = pods_with(limits(gpu="100"))
    scene = Scene(of_kind(*POD, many), [of_kind(*POD, many, name="a")], SERVED, WARNED)
    assert "ResourceClaim/n/w-" in ask(scene, tmp_path, (simulate,))["simulate"].said


def test_a_pod_that_is_refused_for_its_amount_does_not_fit(tmp_path):
    """Its claim would fit, which is no outlook for it."""
    scene = Scene(of_kind(*POD, pods_with(limits(gpu="500m"))), (), SERVED)
    assert ask(scene, tmp_path, (explain,))["explain"].refused
    assert asked("explain", "pod/w", "-n", "n", *files(scene, tmp_path))["pod"]["prospect"] is None
