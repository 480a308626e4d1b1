"""All commands give the same answer about an object (`tests/agreement.py`): the examples, and every contradiction that was found."""

import json

import pytest

from cluster import manifests
from tests.agreement import CLUSTER, COMMANDS, Scene, as_list, ask, demo
from tests.cli.agreement_scenes import (
    BOTH,
    EMPTY,
    FPGA,
    HEAD,
    IN_POD,
    JOB,
    JOBSET,
    MOVED,
    NOT_AT_X,
    ONE,
    POD,
    RAY_CLUSTER,
    SERVED,
    TRAINING,
    UNFILLED,
    WARNED,
    WHOLE,
    limits,
    namespace,
    of_kind,
    pods_with,
)
from tests.cli.agreement_worlds import claim
from tests.cli.running import run
from tests.contradictions import contradictions
from tests.corpus import move
from tests.corpus.move import GPU, migrated_fleet, node
from tests.webhook.pods import EXAMPLES


def apart(around):
    """The objects in two lists: nodes and classes last, the others first."""
    parts = [], []
    for obj in around:
        parts[obj["kind"] in CLUSTER].append(obj)
    return parts


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
def test_the_commands_agree_about_each_scene(scene, tmp_path):
    assert not contradictions(ask(scene, tmp_path))


QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
AWAY = pods_with(limits(gpu="1"), nodeSelector={"pool": "x"})
OWN = {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
# A key that a DeviceClass serves, beside a key whose claims need a class without devices.
SERVED_AND_NOT = pods_with(limits(gpu="1"))
SERVED_AND_NOT["spec"]["initContainers"] = [
    {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}
]
# A container with whole devices, and a container with a key that Koordinator sums over the pod.
HALVES = pods_with(limits(gpu="1"))
HALVES["spec"]["containers"].append(
    {"name": "d", "image": "i", "resources": {"limits": {"huawei.com/npu-core": "100"}}}
)
NETWORKS = pods_with({}) | {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "a/b"}}}
ISOLATED, LABELLED = (
    template | {"metadata": {"labels": {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}}}
    for template in (ONE, pods_with({}))
)
EXAMPLE_FLEET = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
AT_X = node("x", {"pool": "x"})
# A claim for more devices than a node has, beside a name that a DeviceClass and device plugins on other nodes serve.
BESIDE_TOO_MANY = pods_with(
    limits(gpu="1") | {"claims": [{"name": "x"}]},
    nodeSelector={"pool": "x"},
    affinity={"nodeAffinity": NOT_AT_X},
    **OWN,
)
BY_BOTH = (
    *(obj for obj in migrated_fleet("a", extended=GPU) if obj["kind"] != "Node"),
    node("a", {"pool": "x"}, gpu=8),
)
# A claim for more devices than a claim can have, beside a name that a driver serves on one node and a device plugin on another.
BESIDE_MAX = pods_with(limits(gpu="1") | {"claims": [{"name": "x"}]}, **OWN)
# The scene; the outcome and a code of translate; whether simulate finds a node.
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
    "a claim for too many devices beside a served name": (
        Scene(of_kind(*POD, BESIDE_TOO_MANY), [claim("c", 9)], BY_BOTH),
        "refused",
        "R023",
        None,
    ),
    "a claim for more devices than one can have beside a name served in two ways": (
        Scene(of_kind(*JOB, BESIDE_MAX), [claim("c", 40)], [*SERVED, node("b", gpu=1), node("d", gpu=1)]),
        "served",
        "",
        False,
    ),
    "a label that only a claim for a share replaces, beside a served key": (
        Scene(of_kind(*JOB, ISOLATED), (), SERVED),
        "served",
        "",
        True,
    ),
    "a label that only a claim for a share replaces": (Scene(of_kind(*POD, LABELLED), (), SERVED), "silent", "", True),
    "an annotation beside no request": (Scene(of_kind(*JOB, NETWORKS), (), MOVED), "silent", "", True),
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
    "an amount of 0, without a class, of a key beside one that nodes have": (
        Scene(of_kind(*POD, pods_with({"limits": {GPU: "1", "nvidia.com/gpumem": "0"}})), (), (node("b", gpu=2),)),
        "left",
        "",
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
    """The summary of `translate -o report` for the object alone, with the others as inventory."""
    (folder / "object.json").write_text(as_list([scene.object]))
    (folder / "around.json").write_text(as_list([*scene.around, *scene.fleet]))
    options = ["--config", folder / "configuration.yaml"] if scene.configuration else []
    given = ["-f", folder / "object.json", "--inventory", folder / "around.json"]
    return run("translate", *given, *options, "-o", "report").stdout.splitlines()[-1]
