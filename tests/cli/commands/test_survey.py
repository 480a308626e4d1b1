"""`drawbridge survey`: each workload that asks, once, what becomes of it, what is in the way; and names that would like to be more than names."""

import csv
import io
import json
import re
import tracemalloc
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from analysis.configuration import ConfigurationInForce
from analysis.loading import SURVEY, Trimmer, read_cluster, reading_of
from analysis.survey import SurveyScope, overview, report
from analysis.survey.rows import CODES, findings
from cli.main import main
from cluster import manifests, resources
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from dra import codes
from dra.finding import Severity
from rendering import formats
from rendering.report import as_text
from rendering.terminal import columns_of, fit, printable
from tests.cli.running import manifest, run, run_json
from tests.corpus.move.autoscaled import STATUS, scaler
from tests.corpus.move.plugins import config_map, device_config, gpu_cluster, policy
from tests.objects import container, node, obj, owner, pod
from tests.webhook.pods import EXAMPLES, configured
from webhook.dialects import Outcome
from webhook.names import MODE_LABEL
from webhook.state import Configuration, Features, outline

ESC = "\x1b]0;owned\x07\x1b[2J"


def limited(name="main", **limits):
    """A container with these limits; `nvidia_gpu` stands for `nvidia.com/gpu`."""
    return container(name, spelled(limits))


def spelled(amounts):
    return {key.replace("_", "/", 1).replace("nvidia/", "nvidia.com/"): value for key, value in amounts.items()}


def made_by(kind, name, version="apps/v1"):
    return {"ownerReferences": [owner(kind, name, version)]}


def running_pod(name, *containers, node="", by=None, phase="Running", namespace="a", **metadata):
    place = {"nodeName": node} if node else {}
    return pod(name, namespace=namespace, phase=phase, containers=list(containers), **place, **(by or {}), **metadata)


def maker(kind, name, *containers, by=None, version="apps/v1", **metadata):
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": list(containers)}}
    return obj(kind, name, version, namespace="a", template=template, **(by or {}), **metadata)


def plugin_node(name, labels=(), **allocatable):
    return node(name, labels=dict(labels), allocatable=spelled(allocatable))


def look(*objects, scope=None, configuration=None):
    in_force = ConfigurationInForce(configuration or Configuration())
    return overview(reading_of(objects, Features(), in_force=in_force, pods=False), scope or SurveyScope())


GPU = {"nvidia_gpu": 1, "nvidia_gpumem": 3000, "nvidia_gpucores": 30}
HAMI = limited(**GPU)


def running_deployment(number=3, name="train"):
    """A Deployment, its ReplicaSet and its running pods, as a dump has them."""
    set_ = maker("ReplicaSet", f"{name}-1", HAMI, by=made_by("Deployment", name))
    pods = [
        running_pod(f"{name}-1-{i}", HAMI, node=f"n{i}", by=made_by("ReplicaSet", f"{name}-1")) for i in range(number)
    ]
    return [maker("Deployment", name, HAMI), set_, *pods]


def test_a_deployment_counts_once_with_what_it_made():
    [workload] = look(*running_deployment()).workloads
    assert (workload.kind, workload.name, workload.pods, workload.running) == ("Deployment", "train", 3, 3)
    assert workload.outcome is Outcome.TRANSLATED


def lines_of(seen, *, whole=False):
    """The survey as a terminal shows it."""
    return [line for title, lines in as_text(report(seen, whole=whole)) for line in (title, *lines)]


def test_namesakes_of_two_overlays_are_two_workloads():
    objects = maker("Deployment", "web", HAMI), maker("Deployment", "web", limited(nvidia_gpu="0.5"))
    reading = replace(reading_of(objects, Features()), places=(("dev/web.yaml", 1), ("prod/web.yaml", 1)))
    seen = overview(reading, SurveyScope())
    assert [(workload.file, workload.outcome.value) for workload in seen.workloads] == [
        ("dev/web.yaml", "translated"),
        ("prod/web.yaml", "refused"),
    ]
    assert any("Deployment/web (prod/web.yaml)" in line for line in lines_of(seen))


def test_a_workload_dumped_into_several_files_is_listed_once():
    objects = tuple(running_deployment())
    for uids in (False, True):
        if uids:
            objects = tuple(
                {**stored, "metadata": {**stored["metadata"], "uid": str(i)}} for i, stored in enumerate(objects)
            )
        places = tuple((f"{i}.yaml", 1) for i in range(len(objects)))
        [workload] = overview(replace(reading_of(objects, Features()), places=places), SurveyScope()).workloads
        assert workload.pods == 3


def unfit(name, *containers, claims=()):
    """A Deployment that the API server refuses for its name."""
    made = maker("Deployment", name, *containers)
    made["spec"]["template"]["spec"]["resourceClaims"] = list(claims)
    return made


UNFIT = [
    unfit("Without_Devices", {"name": "c", "image": "i", "resources": {"limits": {"cpu": 1}}}),
    unfit("With_Key", HAMI),
    unfit("With_Claim", {"name": "c", "image": "i"}, claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]),
    unfit("Of_No_Dialect", limited(**{"x.io_gadget": "half"})),
]


def test_a_refused_workload_without_devices_is_not_counted(tmp_path):
    assert {workload.name for workload in look(*UNFIT).workloads} == {"With_Key", "With_Claim", "Of_No_Dialect"}
    done = run("translate", "-f", manifest(tmp_path / "d.json", *UNFIT), "-o", "report")
    assert "Without_Devices" not in done.stdout
    assert done.stdout.splitlines()[-1] == ("4 objects, 0 rewritten: 3 refused, 1 without a legacy request")
    assert "'Without_Devices' must be a DNS subdomain" in run("check", "-f", tmp_path / "d.json").stdout


def test_a_namespace_that_no_file_has_is_named(tmp_path):
    file = manifest(tmp_path / "d.json", *running_deployment())
    done = run("survey", "-f", file, "-n", "aa")
    assert "no object of namespace 'aa' is in the input; it has those of a\n" in done.stderr
    assert "no object" not in run("survey", "-f", file, "-n", "a").stderr


def test_a_pod_that_runs_is_judged_as_it_was_before_it_was_placed():
    placed = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,0:;"}
    [workload] = look(running_pod("p", HAMI, node="n1", annotations=placed)).workloads
    assert (workload.outcome, workload.running) == (Outcome.TRANSLATED, 1)


def test_pods_of_an_unreadable_kind_are_listed_under_their_owner():
    owner = made_by("PyTorchJob", "llm", "kubeflow.org/v1")
    [workload] = look(*[running_pod(f"llm-{i}", HAMI, by=owner) for i in range(4)]).workloads
    assert (workload.kind, workload.name, workload.pods) == ("PyTorchJob", "llm", 4)


def test_a_workload_of_a_third_party_kind_is_inspected():
    ray = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "a"},
        "spec": {"workerGroupSpecs": [{"template": {"spec": {"containers": [HAMI]}}}]},
    }
    [workload] = look(ray, running_pod("w", HAMI, by=made_by("RayCluster", "r", "ray.io/v1"))).workloads
    assert (workload.kind, workload.pods) == ("RayCluster", 1)


MODEL = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "m", "namespace": "a"},
    "spec": {"predictor": {"model": {"resources": {"limits": HAMI["resources"]["limits"]}}}},
}


def test_a_kind_without_a_template_is_told_by_its_own_fields():
    [workload] = look(MODEL).workloads
    assert (workload.kind, workload.outcome, workload.pods) == ("InferenceService", Outcome.TRANSLATED, 0)
    assert {key.container for key in workload.keys} == {"predictor/model"}


def test_fields_beside_a_template_that_asks_for_nothing_are_told():
    template = maker("Deployment", "m", limited())["spec"]["template"]
    template["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    spec = {"resources": {"gpu": "1"}, "podTemplate": template}
    version = "production-stack.vllm.ai/v1alpha1"
    runtime = {"apiVersion": version, "kind": "VLLMRuntime", "metadata": {"name": "m"}, "spec": spec}
    [workload] = look(runtime).workloads
    assert [(key.container, key.key, str(key.outcome)) for key in workload.keys] == [
        ("", "nvidia.com/gpu.present", "left"),
        ("resources", "gpu", str(workload.outcome)),
    ]
    assert look({**runtime, "spec": {"podTemplate": template}}).workloads == ()


def test_the_template_below_a_kind_tells_more_than_its_fields():
    below = maker("Deployment", "m", HAMI, by=made_by("InferenceService", "m", MODEL["apiVersion"]))
    [workload] = look(MODEL, below, running_pod("m-1", HAMI, by=made_by("Deployment", "m"))).workloads
    assert (workload.kind, workload.pods) == ("InferenceService", 1)
    assert {(key.container, key.amount) for key in workload.keys} == {("main", "1"), ("main", "3000"), ("main", "30")}


def test_a_word_beside_a_request_does_not_keep_it():
    gang = {"gang.scheduling.koordinator.sh/name": "g"}
    asks = running_pod("p", limited(**{"koordinator.sh_gpu".replace("_", "/"): 100}), annotations=gang)
    selects = running_pod("q", HAMI)
    selects["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    taken = running_pod("r", {**HAMI, "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]})
    assert [workload.outcome for workload in look(asks, selects, taken).workloads] == [Outcome.TRANSLATED] * 3
    assert look(running_pod("s", limited(), labels={"drawbridge.dev/skip": "true"})).workloads == ()
    [skipped] = look(running_pod("s", HAMI, labels={"drawbridge.dev/skip": "true"})).workloads
    assert skipped.outcome is Outcome.LEFT


def test_a_workload_whose_device_class_is_missing_waits_with_that_obstacle():
    none = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "other"}, "spec": {}}
    seen = look(*running_deployment(), plugin_node("n0"), none)
    [workload] = seen.workloads
    assert workload.outcome is Outcome.LEFT
    assert "S003" in {obstacle.code for obstacle in seen.obstacles}


def test_owners_that_own_one_another_end():
    left = running_pod("p", HAMI, by=made_by("Pod", "q", "v1"))
    right = running_pod("q", HAMI, by=made_by("Pod", "p", "v1"))
    assert sum(workload.pods for workload in look(left, right).workloads) == 2


def test_owners_in_a_circle_above_a_pod_end_too():
    above = maker("A", "a", HAMI, version="x/v1", by=made_by("B", "b", "x/v1"))
    round_ = maker("B", "b", HAMI, version="x/v1", by=made_by("A", "a", "x/v1"))
    seen = look(above, round_, running_pod("p", HAMI, by=made_by("A", "a", "x/v1")))
    assert sum(workload.pods for workload in seen.workloads) == 1


def test_an_object_nested_deeper_than_the_survey_looks_hides_no_other():
    deep = 1
    for _ in range(5000):
        deep = {"a": deep}
    odd = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": deep}
    assert len(look(odd, running_pod("p", HAMI)).workloads) == 1


def test_a_static_pod_is_its_own_workload():
    [workload] = look(running_pod("p", HAMI, by=made_by("Node", "n1", "v1"))).workloads
    assert (workload.kind, workload.name) == ("Pod", "p")


def test_ended_workloads_and_pods_without_requests_are_not_listed():
    done = maker("Job", "done", HAMI, version="batch/v1")
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert look(running_pod("p", HAMI, phase="Succeeded"), done, running_pod("web", limited())).workloads == ()


def test_a_key_that_no_dialect_has_is_not_passed_over():
    typo = limited(nvidia_gpumemory=3)
    [workload] = look(running_pod("p", typo, limited("other", **{"amd.com_weird": 1}))).workloads
    assert workload.outcome is Outcome.UNKNOWN
    by_key = {key.key: (key.code, key.detail, key.remedy) for key in workload.keys}
    assert by_key["nvidia.com/gpumemory"] == ("D211", "did you mean nvidia.com/gpumem?", "")
    assert by_key["amd.com/weird"][0] == "D211"
    assert "declare it under `dialects`" in by_key["amd.com/weird"][2]


def test_a_workload_whose_keys_differ_is_partly_translated(tmp_path):
    """Each key keeps its own word; `--fail-on` takes the word of the workload."""
    both = running_pod("p", HAMI, limited("other", **{"nvidia_gpu.shared": 2}))
    [workload] = look(both).workloads
    assert workload.outcome is Outcome.PARTLY
    assert {key.key: str(key.outcome) for key in workload.keys if key.container == "other"} == {
        "nvidia.com/gpu.shared": "left"
    }
    assert {str(key.outcome) for key in workload.keys if key.container == "main"} == {"translated"}
    file = manifest(tmp_path / "p.yaml", both)
    exits = {level: run("survey", "-f", file, "--fail-on", level).exit_code for level in ("left", "partly")}
    assert exits == {"left": 0, "partly": 1}


def coded(what):
    """A pod with a key, a selector or a plugin request that `translate` has a code for, and the fleet beside it."""
    coded_pod = running_pod("p", limited(nvidia_gpu=1), phase="")
    fleet = [plugin_node("n0", {"pool": "a"}, nvidia_gpu=8), plugin_node("n1", {"pool": "b"})]
    match what:
        case "D211":
            coded_pod["metadata"]["labels"] = {"hami.io/webhok": "ignore"}
        case "D212":
            coded_pod["spec"]["nodeSelector"] = {"pool": "c"}
            fleet = [plugin_node("n0", {"pool": "a"}), BY_NAME, SLICE]
        case "D221":
            coded_pod["spec"]["nodeSelector"] = {"pool": "b"}
        case "D222":
            coded_pod = running_pod("p", limited(**{"nvidia_gpu.shared": 1}), phase="")
    return coded_pod, fleet


@pytest.mark.parametrize("code", ["D211", "D212", "D221", "D222"])
@pytest.mark.parametrize("form", ["json", "csv", "text", "sarif"])
def test_every_code_of_a_decision_is_in_the_survey(code, form, tmp_path):
    coded_pod, fleet = coded(code)
    given, around = manifest(tmp_path / "p.yaml", coded_pod), manifest(tmp_path / "fleet.yaml", *fleet)
    _, translated = run_json("translate", "-f", given, "--inventory", around)
    decided = {(decision["key"], decision.get("code", ""), decision["detail"]) for decision in translated["decisions"]}
    assert code in {decision[1] for decision in decided}
    output = run("survey", "-f", given, "-f", around, "-o", form).stdout
    assert code in output
    if form == "json":
        [workload] = json.loads(output)["workloads"]
        assert {(key["key"], key.get("code", ""), key["detail"]) for key in workload["keys"]} == decided


def test_devices_taken_without_a_request_are_told():
    taker = {"name": "m", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    [workload] = look(running_pod("p", taker)).workloads
    assert (workload.outcome, workload.keys[0].key) == (Outcome.LEFT, "NVIDIA_VISIBLE_DEVICES")
    honest = {**taker, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    assert look(running_pod("p", honest)).workloads == ()


def test_a_workload_waits_for_a_cluster_that_has_no_driver_yet():
    seen = look(*running_deployment(), plugin_node("n0", nvidia_gpu=10))
    [workload] = seen.workloads
    assert workload.outcome is Outcome.LEFT
    class_ = "DeviceClass hami-core-gpu.project-hami.io has devices"
    assert {key.key: key.until for key in workload.keys} == {
        "nvidia.com/gpu": f"{class_} and no device plugin has nvidia.com/gpu",
        "nvidia.com/gpumem": class_,
        "nvidia.com/gpucores": class_,
    }
    [missing] = [obstacle for obstacle in seen.obstacles if obstacle.code == "S003"]
    assert missing.object == "DeviceClass/hami-core-gpu.project-hami.io"


def test_a_plain_gpu_waits_while_nodes_still_hand_it_out_and_stays_where_they_share_it():
    plain = running_pod("p", limited(nvidia_gpu=1))
    [workload] = look(plain, plugin_node("n0", nvidia_gpu=8)).workloads
    assert workload.outcome is Outcome.LEFT
    shared = plugin_node("n0", {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, nvidia_gpu=8)
    [workload] = look(plain, shared).workloads
    assert workload.outcome is Outcome.LEFT


def of_devices(kind, name, **spec):
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


BY_NAME = of_devices("DeviceClass", "gpu.nvidia.com", extendedResourceName="nvidia.com/gpu")
SLICE = of_devices(
    "ResourceSlice",
    "n0",
    driver="gpu.nvidia.com",
    nodeName="n0",
    pool={"name": "n0", "generation": 1, "resourceSliceCount": 1},
    devices=[{"name": "gpu-0"}, {"name": "gpu-1"}],
)
IMPLICIT = "deviceclass.resource.kubernetes.io_gpu.nvidia.com"


def tainting(key, **selector):
    taint = {"key": key, "effect": "NoSchedule"}
    return of_devices("DeviceTaintRule", "r", deviceSelector={"driver": "gpu.nvidia.com"} | selector, taint=taint)


@pytest.mark.parametrize("name", ["nvidia.com_gpu", IMPLICIT])
def test_a_request_that_core_serves_needs_no_change_unless_something_blocks_it(name):
    def became(*objects, **more):
        asking = limited()
        asking["resources"]["limits"] = {name.replace("_", "/"): 1}
        asking_pod = running_pod("p", asking, **more)
        [seen] = look(asking_pod, plugin_node("n0"), BY_NAME, SLICE, *objects).workloads
        [key] = seen.keys
        return seen.outcome, key.detail, key.until, key.remedy

    assert became()[::2] == (Outcome.SERVED, "")
    assert became(tainting("a/repairs", device="gpu-0"))[::2] == (Outcome.SERVED, "")
    outcome, _, until, remedy = became(tainting("a/repairs"))
    assert (outcome, until) == (Outcome.SERVED, "a device of gpu.nvidia.com is without taint a/repairs")
    assert "tolerate it" in remedy
    left, why, until, remedy = became(tainting("drawbridge.dev/fence"))
    assert until == ""
    assert (left, "a fence keeps gpu.nvidia.com" in why, "the scheduler that the fence allows" in remedy) == (
        Outcome.LEFT,
        True,
        True,
    )
    assert became(node="n0", phase="Running")[0] is Outcome.SERVED
    bound, why, *_ = became(node="n0", phase="")  # no server has seen it, so its author wrote the node
    assert (bound, "nodeName is set" in why) == (Outcome.LEFT, True)


@pytest.mark.parametrize(("nodes", "outcome"), [((), Outcome.SERVED), ((plugin_node("n0"),), Outcome.REFUSED)])
def test_a_class_of_no_devices_serves_no_name(nodes, outcome):
    asking = limited()
    asking["resources"]["limits"] = {"deviceclass.resource.kubernetes.io/none": 1}
    none = of_devices("DeviceClass", "none", selectors=[{"cel": {"expression": "device.driver == 'x'"}}])
    [workload] = look(running_pod("p", asking), *nodes, none, SLICE).workloads
    assert workload.outcome is outcome
    if not nodes:
        assert workload.keys[0].until == "DeviceClass none has devices"


def test_pods_that_were_translated_already_are_moved():
    moved = running_pod("p", HAMI, annotations={"drawbridge.dev/original": "{}"}, by=made_by("Deployment", "train"))
    [workload] = look(maker("Deployment", "train", HAMI), moved).workloads
    assert (workload.outcome, workload.moved) == (Outcome.TRANSLATED, 1)


def test_devices_beside_a_pod_that_stays_are_stranded_and_others_come_free():
    staying = limited(**{"nvidia_gpu.shared": 2})
    objects = [plugin_node(f"n{i}", **{"nvidia_gpu.shared": 8, "nvidia_gpu": 4}) for i in range(2)]
    objects += [running_pod("stays", staying, node="n0"), running_pod("moves", limited(**GPU), node="n1")]
    held = {plugin.key: plugin for plugin in look(*objects).plugins}
    shared, whole = held["nvidia.com/gpu.shared"], held["nvidia.com/gpu"]
    assert (shared.devices, shared.staying, shared.stranded, shared.freed) == (16, 2, 6, 8)
    assert (whole.devices, whole.moving, whole.stranded, whole.freed) == (8, 1, 0, 8)


def test_init_containers_use_devices_before_the_others_and_sidecars_beside_them():
    before = limited("init", nvidia_gpu=3)
    beside = {**limited("side", nvidia_gpu=1), "restartPolicy": "Always"}
    pod = running_pod("p", limited(nvidia_gpu=1), node="n0")
    pod["spec"]["initContainers"] = [before, beside]
    [held] = look(pod, plugin_node("n0", nvidia_gpu=8)).plugins
    assert held.moving + held.staying == 3


def test_each_obstacle_is_named_with_its_object():
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "a"},
        "spec": {"hard": {"requests.nvidia.com/gpu": 4}},
    }
    range_ = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "a"},
        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": 1}}]},
    }
    rule = {"operations": ["CREATE"], "resources": ["pods"], "apiGroups": [""], "apiVersions": ["v1"]}
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hami"},
        "webhooks": [{"name": "x", "rules": [rule]}],
    }
    plugin = maker("DaemonSet", "plugin", limited())
    volumes = [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    plugin["spec"]["template"]["spec"]["volumes"] = volumes
    queued = maker("Job", "j", HAMI, version="batch/v1", labels={"kueue.x-k8s.io/queue-name": "fast"})
    seen = look(quota, range_, hook, hook, plugin, queued)
    by_code = {obstacle.code: obstacle.object for obstacle in seen.obstacles}
    assert len(by_code) == len(seen.obstacles)
    assert by_code == {
        "S012": "ResourceQuota/a/q",
        "S013": "LimitRange/a/l",
        "S011": "MutatingWebhookConfiguration/hami",
        "S015": "DaemonSet/a/plugin",
        "S014": "LocalQueue/a/fast",
    }


def test_the_queues_of_a_namespace_are_one_obstacle():
    labels = [{"kueue.x-k8s.io/queue-name": queue} for queue in ("fast", "slow", "slow")]
    jobs = [maker("Job", f"j{at}", HAMI, version="batch/v1", labels=job_labels) for at, job_labels in enumerate(labels)]
    [queues] = [obstacle for obstacle in look(*jobs).obstacles if obstacle.code == "S014"]
    assert queues.object == "LocalQueue/a/fast, a/slow"
    assert "3 workloads in 2 Kueue queues" in queues.message


@pytest.mark.parametrize(
    ("there", "named", "message"),
    [
        ([policy()], "ClusterPolicy/cluster-policy", "never the DRA driver"),
        ([{**policy(), "spec": {"devicePlugin": {"enabled": False}}}], "", ""),
        ([policy(), gpu_cluster()], "GPUCluster/gpu-cluster", "reconciles neither it nor ClusterPolicy cluster-policy"),
        ([gpu_cluster("notReady")], "GPUCluster/gpu-cluster", "its state is notReady"),
        ([gpu_cluster()], "", ""),
    ],
)
def test_the_stack_that_the_gpu_operator_runs_is_an_obstacle_unless_it_is_the_driver(there, named, message):
    obstacles = [
        obstacle
        for obstacle in look(*running_deployment(), *there).obstacles
        if obstacle.code in ("S016", "S017", "S018")
    ]
    assert [obstacle.object for obstacle in obstacles] == ([named] if named else [])
    assert all(message in finding.message and finding.remedy for finding in obstacles)


def test_an_autoscaler_is_an_obstacle_by_its_version_and_by_its_groups_without_nodes():
    status = config_map("cluster-autoscaler-status", "kube-system", status=STATUS)

    def obstacles_of(version):
        return {
            obstacle.code: obstacle.message
            for obstacle in look(*running_deployment(), scaler(version), status).obstacles
        }

    assert obstacles_of("1.34.0")["S008"].startswith("cluster-autoscaler 1.34 does not consider claims")
    assert "S008" not in obstacles_of("1.36.1")
    assert obstacles_of("1.36.1")["S009"].startswith("no node of gpu-a exists: for a claim one is created only if")


def of_kind(version, kind, namespace="", **spec):
    """An object of an operator."""
    metadata = {"name": "x"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


SRIOV = "sriovnetwork.openshift.io/v1"
ON = {"dynamicResourceAllocation": True}


@pytest.mark.parametrize(
    ("there", "what", "named", "message", "remedy"),
    [
        (device_config(), "S016", "DeviceConfig/kube-amd-gpu/default", "in its place", "move nodes from its"),
        (device_config(driver=True), "S017", "DeviceConfig/kube-amd-gpu/default", "refuses it", "false"),
        (device_config(True, True), "S017", "DeviceConfig/kube-amd-gpu/default", "refuses it", "false"),
        (device_config(False, True), "", "", "", ""),
        (of_kind("deviceplugin.intel.com/v1", "GpuDevicePlugin"), "S016", "GpuDevicePlugin/x", "no DRA driver", "gpu.intel.com"),
        (of_kind("deviceplugin.intel.com/v1", "QatDevicePlugin"), "S016", "QatDevicePlugin/x", "no DRA driver", "qat.intel.com"),
        (of_kind("deviceplugin.intel.com/v1", "DsaDevicePlugin"), "", "", "", ""),
        (of_kind("mellanox.com/v1alpha1", "NicClusterPolicy", sriovDevicePlugin={"image": "i"}), "S016", "NicClusterPolicy/x", "nodeAffinity", "dranet"),
        (of_kind("mellanox.com/v1alpha1", "NicClusterPolicy", rdmaSharedDevicePlugin={"image": "i"}), "", "", "", ""),
        (of_kind(SRIOV, "SriovOperatorConfig", "s"), "S016", "SriovOperatorConfig/s/x", "in its place", "featureGates"),
        (of_kind(SRIOV, "SriovOperatorConfig", "s", featureGates=ON), "", "", "", ""),
        # Kinds of the same names that others have.
        (of_kind("k8s.aws/v1alpha1", "DeviceConfig", "s"), "", "", "", ""),
        (of_kind("kyverno.io/v1", "ClusterPolicy"), "", "", "", ""),
        (of_kind("habanalabs.com/v1", "ClusterPolicy"), "", "", "", ""),
    ],
)  # fmt: skip
def test_an_operator_that_runs_device_plugins_is_an_obstacle_with_its_own_remedy(there, what, named, message, remedy):
    obstacles = look(*running_deployment(), there).obstacles
    assert [(finding.code, finding.object) for finding in obstacles] == ([(what, named)] if what else [])
    assert all(message in finding.message and remedy in finding.remedy for finding in obstacles)
    assert look(*running_deployment(), outline(there)).obstacles == obstacles  # as a snapshot has it


def plugin_on_nodes(name="plugin", namespace="a", by=None):
    """A DaemonSet that mounts the folder of device plugins."""
    daemon_set = maker("DaemonSet", name, limited(), by=by)
    daemon_set["metadata"]["namespace"] = namespace
    volumes = [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    daemon_set["spec"]["template"]["spec"]["volumes"] = volumes
    return daemon_set


@pytest.mark.parametrize(
    ("there", "remedy"),
    [
        (plugin_on_nodes(), "node selector"),
        (plugin_on_nodes(by=made_by("FpgaDevicePlugin", "f", "deviceplugin.intel.com/v1")), "by FpgaDevicePlugin f, which creates it"),
        (plugin_on_nodes("nvidia-gpu-device-plugin-small-cos", "kube-system"), "`gke-no-default-nvidia-gpu-device-plugin=true`"),
        (plugin_on_nodes("tpu-device-plugin", "kube-system"), "`gke-no-default-tpu-device-plugin=true`"),
        (plugin_on_nodes("tpu-device-plugin", "mine"), "node selector"),
    ],
)  # fmt: skip
def test_the_remedy_for_a_device_plugin_names_what_keeps_it_off_a_node(there, remedy):
    [finding] = look(*running_deployment(), there).obstacles
    assert finding.code == "S015"
    assert remedy in finding.remedy


def test_an_imex_channel_that_the_device_plugin_adds_is_an_obstacle():
    def obstacles_with(*channels):
        configuration = {"version": "v1", "imex": {"channelIDs": list(channels)}}
        return [obstacle.object for obstacle in look(*running_deployment(), config_map(any=configuration)).obstacles]

    assert obstacles_with(0) == ["ConfigMap/gpu-operator/plugin (any)"]
    assert obstacles_with() == obstacles_with(1) == []


def test_a_workload_whose_devices_a_limit_range_gives_is_told_of():
    given = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "a"},
        "spec": {"limits": [{"type": "Container", "default": {"nvidia.com/gpu": 1}}]},
    }
    plain = maker("Deployment", "plain", limited())
    assert look(plain).workloads == ()
    [workload] = look(plain, given).workloads
    assert [(key.key, key.outcome.value) for key in workload.keys] == [("nvidia.com/gpu", "left")]


FITS, LARGE = limited(nvidia_gpu=1, nvidia_gpumem=3000), limited(nvidia_gpu=1, nvidia_gpumem=900_000)


def in_mode(mode, *objects):
    """The objects, in a namespace with this label."""
    return [
        *objects,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {MODE_LABEL: mode}}},
    ]


def on_a_fleet(*containers):
    """One Deployment for each container, and the nodes of the examples."""
    made = [maker("Deployment", f"d{number}", limits) for number, limits in enumerate(containers)]
    return [*made, *[document.object for document in manifests.read([str(EXAMPLES / "fleet")])]]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_a_mode_that_only_looks_leaves_a_workload_and_says_what_would_become_of_it(mode, tmp_path):
    objects = on_a_fleet(FITS, LARGE)
    enforced, held = look(*objects), look(*in_mode(mode, *objects))
    assert [workload.outcome for workload in enforced.workloads] == [Outcome.APPROXIMATED, Outcome.REFUSED]
    assert [(workload.outcome, workload.would) for workload in held.workloads] == [
        (Outcome.LEFT, Outcome.APPROXIMATED),
        (Outcome.LEFT, Outcome.REFUSED),
    ]
    assert {(key.outcome, bool(key.would)) for workload in held.workloads for key in workload.keys} == {
        (Outcome.LEFT, True)
    }
    for workload, other in zip(held.workloads, enforced.workloads, strict=True):
        assert {key.key for key in workload.keys} == {key.key for key in other.keys}
        assert {key.detail for key in workload.keys if key.would == "refused"} == {
            key.detail for key in other.keys if key.outcome == "refused"
        }
    # What has to be decided, what is in the way and what comes free are of the move.
    assert (held.reasons, held.obstacles, held.plugins) == (enforced.reasons, enforced.obstacles, enforced.plugins)
    assert held.modes == {"a": mode}
    lines = lines_of(held, whole=True)
    assert f"Workloads of a (mode {mode})" in lines
    assert any("would be approximated: nvidia.com/gpu=1, nvidia.com/gpumem=3000" in line for line in lines)
    assert any(f"main: nvidia.com/gpumem  {mode}: would be translated: 3000 MiB" in line for line in lines)
    [total] = [line for line in lines if "keep their keys" in line]
    assert total.endswith("(0 pods, 1 would be approximated in mode enforce, 1 would be refused in mode enforce)")
    found_codes = {(finding.code, finding.severity) for of in findings(held) for finding in of.findings}
    assert found_codes == {("M001", Severity.WARNING), ("R020", Severity.WARNING)}
    file = manifest(tmp_path / "all.json", *in_mode(mode, *objects))
    assert run("survey", "-f", file).exit_code == 0
    assert run("survey", "-f", file, "--mode", "enforce").exit_code == 1
    row = next(csv.DictReader(io.StringIO(run("survey", "-f", file, "-o", "csv").stdout)))
    found_codes = [row[name] for name in ("outcome", "would", "keyOutcome", "keyWould", "mode")]
    assert found_codes == ["left", "approximated", "left", "translated", mode]


def test_a_claim_of_a_pods_own_that_is_refused_or_would_be_is_a_key_of_it():
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 20}}]}}
    template = of_devices("ResourceClaimTemplate", "t", spec=spec)
    template["metadata"]["namespace"] = "a"
    own = running_pod("own", {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}, phase="")
    own["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    objects = (own, template, *on_a_fleet())
    [enforced], [held] = look(*objects).workloads, look(*in_mode("observe", *objects)).workloads
    assert (enforced.outcome, held.outcome, held.would) == (Outcome.REFUSED, Outcome.LEFT, Outcome.REFUSED)
    assert [(key.code, key.outcome.value) for key in enforced.keys] == [(key.code, key.would) for key in held.keys]


def test_off_decides_nothing_more():
    seen = look(*in_mode("off", *on_a_fleet(FITS)))
    [workload] = seen.workloads
    assert (workload.outcome, workload.would) == (Outcome.LEFT, None)
    assert {(key.mode, key.detail, key.until) for key in workload.keys} == {
        ("off", f"its namespace a has the label {MODE_LABEL}=off", "")
    }
    assert "S003" not in {obstacle.code for obstacle in seen.obstacles}
    seen = look(*on_a_fleet(FITS), configuration=configured(mode="off"))
    assert {key.detail for workload in seen.workloads for key in workload.keys} == {"the configuration says mode: off"}


def test_a_mode_holds_back_only_what_would_move():
    """A key that waits for its driver does so in every mode."""
    waiting = look(*running_deployment(), plugin_node("n0", nvidia_gpu=10))
    held = look(*in_mode("observe", *running_deployment(), plugin_node("n0", nvidia_gpu=10)))
    assert held.workloads[0].keys == waiting.workloads[0].keys
    assert held.workloads[0].would is None


def test_an_invalid_mode_label_is_an_obstacle_and_counts_as_warn():
    seen = look(*in_mode("Enforce", *running_deployment()))
    assert seen.modes == {"a": "warn"}
    [finding] = [obstacle for obstacle in seen.obstacles if obstacle.code == "D214"]
    assert (finding.object, finding.remedy) == ("Namespace/a", codes.CODES["D214"].remedy)
    assert "drawbridge.dev/mode='Enforce' is not a valid mode" in finding.message


def test_the_canary_chooses_workloads_by_their_names():
    """Pods of a server that are equal but for their controllers are not judged as one."""
    pods = [
        running_pod(f"p{number}", HAMI, node="n", uid=f"u{number}", by=made_by("ReplicaSet", f"r{number}"))
        for number in range(20)
    ]
    seen = look(*pods, configuration=configured(canary=50))
    assert {(workload.outcome, workload.would) for workload in seen.workloads} == {
        (Outcome.TRANSLATED, None),
        (Outcome.LEFT, Outcome.TRANSLATED),
    }


def test_a_workload_with_claims_of_its_own_has_no_outcome(tmp_path):
    own = unfit("own", {"name": "c", "image": "i"}, claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    seen = look(own)
    [workload] = seen.workloads
    assert (workload.outcome, workload.would, workload.keys) == (None, None, ())
    lines = lines_of(seen)
    assert "  own claims          1  have no keys, but claims of their own (0 pods)" in lines
    assert "  own claims  Deployment/own  0/0" in lines
    file = manifest(tmp_path / "own.json", own)
    _, answer = run_json("survey", "-f", file, "--fail-on", "approximated")
    assert (answer["outcomes"], answer["workloads"][0]["outcome"]) == ({}, None)
    assert "own claims" in run("survey", "-f", file, "-o", "html").stdout
    [row] = csv.DictReader(io.StringIO(run("survey", "-f", file, "-o", "csv").stdout))
    assert row["outcome"] == ""


def test_a_namespace_and_labels_narrow_what_is_asked_about_and_not_what_is_used():
    objects = [
        *running_deployment(),
        running_pod("other", HAMI, namespace="b", node="n0"),
        plugin_node("n0", nvidia_gpu=10),
    ]
    seen = look(*objects, scope=SurveyScope(namespaces=frozenset({"b"})))
    assert [workload.name for workload in seen.workloads] == ["other"]
    assert seen.plugins[0].moving == 2
    labelled = look(*objects, scope=SurveyScope(labels=lambda labels: labels.get("app") == "train"))
    assert [workload.name for workload in labelled.workloads] == ["train"]


# The command


@pytest.fixture
def dump(tmp_path):
    return manifest(
        tmp_path / "dump.yaml", *running_deployment(), running_pod("odd", limited(**{"nvidia_gpu.shared": 1}))
    )


def test_every_exit(dump, tmp_path):
    assert run("survey", "-f", dump).exit_code == 0, "a workload that stays works as before"
    assert run("survey", "-f", dump, "--fail-on", "left").exit_code == 1
    assert run("survey", "-f", dump, "--fail-on", "never").exit_code == 0
    assert run("survey", "-f", tmp_path / "gone").exit_code == 2
    assert run("survey", "-f", dump, "--context", "x").exit_code == 2
    assert run("survey", "-f", dump, "-n", "a", "-A").exit_code == 2
    lost = run("survey", "--kubeconfig", tmp_path / "none")
    assert lost.exit_code == 3
    assert "no kubeconfig" in lost.stderr


def test_the_answer_in_json_names_file_and_line(dump):
    code, answer = run_json("survey", "-f", dump, "--fail-on", "left")
    assert code == 1
    assert answer["outcomes"] == {"translated": 1, "left": 1}
    place = answer["workloads"][0]
    assert (place["file"], place["line"], place["running"]) == (str(dump), 1, 3)


def test_a_broken_file_beside_others_stops_nothing(dump, tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: v1\nkind: [")
    code, answer = run_json("survey", "-f", dump, "-f", broken)
    assert code == 2
    assert len(answer["workloads"]) == 2
    assert answer["errors"][0]["file"] == str(broken)


def hostile(tmp_path):
    odd = running_pod(f"=cmd|' /C calc'!A0{ESC}<script>alert(1)</script>\u202e", limited(f"@{ESC}", **GPU))
    wide = running_pod("名前" * 30, HAMI)
    return manifest(tmp_path / "hostile.yaml", odd, wide)


@pytest.mark.parametrize("form", ["text", "wide", "csv", "html", "json"])
def test_no_name_reaches_a_terminal_or_a_spreadsheet_as_a_command(form, tmp_path):
    output = run("survey", "-f", hostile(tmp_path), "-o", form).stdout
    assert "\x1b" not in output
    assert form == "json" or "\u202e" not in output
    assert "\x07" not in output


def test_no_cell_of_the_table_is_a_formula(tmp_path):
    output = run("survey", "-f", hostile(tmp_path), "-o", "csv").stdout
    rows = list(csv.reader(io.StringIO(output)))
    assert len(rows) == 9  # the API server refuses both of them, and says why
    assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "-", "@")]
    assert any(cell.startswith("'=cmd") for row in rows for cell in row)


class Page(HTMLParser):
    """The tags of a page, and what they point at."""

    def __init__(self):
        super().__init__()
        self.tags, self.targets = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.targets += [value for name, value in attrs if name in ("src", "href", "action") or name.startswith("on")]


def test_the_html_survey_runs_no_script_and_loads_nothing_external(tmp_path):
    output = run("survey", "-f", hostile(tmp_path), "-o", "html").stdout
    page = Page()
    page.feed(output)
    assert "script" not in page.tags
    assert page.targets == []
    assert "&lt;script&gt;" in output
    assert "default-src &#x27;none&#x27;" in output or "default-src 'none'" in output
    assert "@media print" in output
    assert not re.search(r"https?://|url\(|@import", output)


def test_text_is_made_printable_and_measured():
    assert printable("a\x1bb\u202ec\ud800") == "a\\x1bb\\u202ec\\ud800"
    assert printable("名前 é") == "名前 é"
    assert columns_of("名前") == 4
    assert fit("名前です", 5) == "名前…"
    assert columns_of(fit("名前です", 6)) == 6
    assert fit("ab", 4) == "ab  "


def test_a_survey_speaks_to_code_hosts_and_test_reports_too(tmp_path):
    objects = [
        running_pod("stays", limited(**{"nvidia_gpu.shared": 2})),
        running_pod("moves", limited(nvidia_gpu=1)),
        running_pod("m", HAMI),
    ]
    file = manifest(tmp_path / "pods.yaml", *objects, running_pod("half", limited(nvidia_gpu="0.5")))
    [answer] = json.loads(run("survey", "-f", file, "-o", "sarif").stdout)["runs"]
    results = {(result["ruleId"], result["level"]) for result in answer["results"]}
    assert results == {("M002", "warning"), ("R001", "error")}
    assert answer["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == str(file)
    report = run("survey", "-f", file, "-o", "junit").stdout
    assert 'name="drawbridge survey" tests="4" failures="1"' in report
    assert f"file={file},line=" in run("survey", "-f", file, "-o", "github").stdout


def test_findings_of_a_live_cluster_have_no_file_location():
    seen = look(running_pod("stays", limited(**{"nvidia_gpu.shared": 2})))
    [result] = json.loads(formats.for_hosts("sarif", findings(seen), "survey"))["runs"][0]["results"]
    assert "physicalLocation" not in result["locations"][0]
    assert "file=" not in formats.for_hosts("github", findings(seen), "survey")


def test_an_outcome_bears_the_severity_of_its_code():
    assert {outcome: codes.CODES[code].severity for outcome, code in CODES.items()} == {
        Outcome.APPROXIMATED: Severity.WARNING,
        Outcome.LEFT: Severity.WARNING,
        Outcome.UNKNOWN: Severity.WARNING,
        Outcome.REFUSED: Severity.ERROR,
    }


# A large dump


def made(number, **more):
    """A pod as a server gives it out."""
    stored = running_pod(
        f"p{number}", HAMI, node=f"n{number}", uid=f"u{number}", labels={"app": "x"}, annotations=dict(APPLIED)
    )
    stored["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {f"f:{i}": {} for i in range(40)}}]
    stored["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "message": "m"}],
        "ip": "i",
    }
    return stored | more


APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 500, "kept": "yes"}


def test_the_trimmer_shares_equal_parts_of_pods_and_drops_bookkeeping_fields():
    trim = Trimmer().trim
    first, two = trim(made(1)), trim(made(2))
    assert first["spec"]["containers"] is two["spec"]["containers"]
    assert first["metadata"]["labels"] is two["metadata"]["labels"]
    assert (first["spec"]["nodeName"], two["spec"]["nodeName"]) == ("n1", "n2")
    assert first["metadata"].keys() == {"name", "namespace", "uid", "labels", "annotations"}
    assert first["metadata"]["annotations"] == {"kept": "yes"}
    assert first["status"] == {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_the_trimmer_keeps_manifests_without_uid_odd_specs_and_claim_status():
    written = running_pod("p", HAMI, managedFields=[1])
    assert Trimmer().trim(written) is written
    odd = {"kind": "Pod", "metadata": {"uid": "u", "labels": 3, "annotations": []}, "spec": [1], "status": "x"}
    assert Trimmer().trim(odd)["spec"] == [1]
    claim = {"kind": "ResourceClaim", "metadata": {"uid": "u"}, "status": {"allocation": {"devices": {}}}}
    assert Trimmer().trim(claim)["status"] == claim["status"]


def written(form, objects):
    """A dump as kubectl writes it, in each of the forms in which people have one."""
    if form == "documents":
        return manifests.dump(objects)
    listed = {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(listed, indent=1) if form == "json" else manifests.dump([listed])


@pytest.mark.parametrize("form", ["json", "yaml", "documents"])
def test_a_large_dump_is_read_item_by_item(form, tmp_path):
    """Its text, and what is kept; not everything that was written in it at once."""
    file = tmp_path / f"dump.{form}"
    file.write_text(written(form, [made(i) for i in range(600)]))
    size = file.stat().st_size
    tracemalloc.start()
    try:
        documents, problems = manifests.read_leniently([file], keep=Trimmer().trim)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(documents), problems) == (600, [])
    assert kept < 0.9 * size
    assert peak < 2.1 * size


@pytest.mark.parametrize("form", ["yaml", "documents"])
def test_a_syntax_error_in_a_large_dump_is_reported_with_its_line(form):
    text = written(form, [made(1), made(2)])
    broken = text.replace("name: p2", "name: p: 2")
    line = broken[: broken.index("p: 2")].count("\n") + 1
    documents, [problem] = manifests.read_leniently(["-"], keep=Trimmer().trim, outside=lambda _: (broken.encode(), ""))
    assert (problem.line, "mapping values" in problem.message) == (line, True)
    assert [document.object["metadata"]["name"] for document in documents] == (["p1"] if form == "documents" else [])


ODD_LISTS = {
    "a list in a list": "kind: List\nitems:\n- kind: List\n  items:\n  - {kind: Pod, metadata: {name: a, uid: u, managedFields: []}}\n",
    "no list": 'a: "\nkind: List\n"\nitems:\n- {kind: Pod, metadata: {uid: u, managedFields: []}}\n',
    "said twice": "kind: List\nitems: [{kind: Pod, metadata: {uid: u, managedFields: []}}]\nkind: List\nkind: Odd\n",
    "odd items": "items: [1, text, [], {kind: Pod, metadata: {uid: u, managedFields: []}}]\nkind: List\n",
    "anchored": "items:\n- &p {kind: Pod, metadata: {uid: u, name: a, managedFields: []}}\n- *p\nkind: List\n",
}


@pytest.mark.parametrize("name", ODD_LISTS)
def test_item_by_item_a_list_means_what_it_means_as_a_whole(name):
    trim = Trimmer().trim
    text = "\n" + ODD_LISTS[name]
    documents, problems = manifests.read_leniently(["-"], keep=trim, outside=lambda _: (text.encode(), ""))
    whole, same = manifests.read_leniently(["-"], outside=lambda _: (text.encode(), ""))
    assert [document.object for document in documents] == [Trimmer().trim(document.object) for document in whole]
    assert [str(problem) for problem in problems] == [str(problem) for problem in same]


@pytest.mark.parametrize("form", ["json", "yaml", "documents"])
def test_a_dump_says_the_same_item_by_item_and_as_a_whole(form, tmp_path):
    objects = [*running_deployment(), made(1), made(2), plugin_node("n1", nvidia_gpu=10), {"kind": "Pod"}, MODEL]
    listed = tmp_path / f"dump.{form}"
    listed.write_text(written(form, objects))
    one_by_one = manifest(tmp_path / "objects.json", *objects)
    answers = [run_json("survey", "-f", file)[1] for file in (listed, one_by_one)]
    for answer in answers:
        for workload in answer["workloads"]:
            del workload["file"], workload["line"]
        assert [skip["reason"] for skip in answer.pop("passedBy")] == ["other"]  # a Pod that has nothing but its kind
    assert answers[0] == answers[1]
    assert len(answers[0]["workloads"]) == 4


@pytest.mark.parametrize("item", ['"text"', "[" * 600 + "]" * 600, '{"kind": "Pod", "metadata": {"name": "\\ud800"}}'])
def test_an_odd_item_of_a_list_stops_no_other(item, tmp_path):
    file = tmp_path / "dump.json"
    good = json.dumps(running_pod("p", HAMI))
    file.write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [{item}, {good}]}}')
    code, answer = run_json("survey", "-f", file, "--fail-on", "never")
    assert code == (0 if "kind" in item else 2)
    assert "p" in [workload["name"] for workload in answer["workloads"]]
    assert all(error["pointer"] == "/items/0" for error in answer.get("errors", ()))


def test_equal_shapes_are_judged_once(monkeypatch):
    from analysis.survey import verdicts

    asked = []

    def decide(obj, state, **more):
        asked.append(obj)
        return verdict(obj, state, **more)

    verdict = verdicts.decide_object
    monkeypatch.setattr(verdicts, "decide_object", decide)
    seen = look(*[made(number) for number in range(50)])
    assert (len(seen.workloads), len(asked)) == (50, 1)
    other = made(3)
    other["metadata"] = {**other["metadata"], "namespace": "b"}
    asked.clear()
    look(
        made(1),
        other,
        made(2, spec={"containers": [limited(nvidia_gpu=1)]}),
        running_pod("w", HAMI),
        running_pod("v", HAMI),
    )
    assert len({json.dumps(shape) for shape in asked}) == 5


# A live cluster


class Narrow(Embedded):
    """A cluster on which some kinds may not be read."""

    closed = frozenset({"nodes", "deployments"})

    async def list(self, resource, namespace=None, **more):
        if resource.plural in self.closed:
            raise Forbidden(f'{resource.plural} is forbidden: User "x" cannot list')
        return await super().list(resource, namespace, **more)


def definition(kind, plural, properties):
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


async def visit(cluster, namespace=""):
    progress = []
    return await read_cluster(cluster, SURVEY, progress.append, namespace=namespace), progress


async def test_a_live_cluster_is_read_page_by_page():
    cluster = Embedded.holding([*running_deployment(1200), plugin_node("n1", nvidia_gpu=10)])
    reading, progress = await visit(cluster)
    [workload] = overview(reading, SurveyScope()).workloads
    assert (workload.pods, reading.unread) == (1200, ())
    assert [text for text in progress if text.endswith(" pods")] == ["500 pods", "1000 pods", "1200 pods"]


async def test_unreadable_resources_are_named_and_the_survey_goes_on():
    reading, _ = await visit(Narrow.holding(running_deployment()))
    kinds = {missed.kind for missed in reading.unread}
    assert {kind for kind in kinds if " in " not in kind} == {"nodes", "deployments.apps"}
    [workload] = overview(reading, SurveyScope()).workloads
    assert (workload.kind, workload.pods) == ("Deployment", 3)


async def test_kinds_that_can_hold_pods_are_found_by_their_schema():
    asked = []

    class Listening(Embedded):
        async def list(self, resource, namespace=None, **more):
            asked.append(resource.plural)
            return await super().list(resource, namespace, **more)

    holds = {"spec": {"type": "object", "properties": {"template": {"properties": {"containers": {}}}}}}
    kinds = [definition("PyTorchJob", "pytorchjobs", holds), definition("Note", "notes", {})]
    await visit(Listening.holding([*kinds, running_pod("p", HAMI)]))
    assert "pytorchjobs" in asked
    assert "notes" not in asked


async def test_one_namespace_is_read_alone():
    asked = {}

    class Listening(Embedded):
        async def list(self, resource, namespace=None, **more):
            asked[resource.plural] = namespace
            return await super().list(resource, namespace, **more)

    await visit(Listening.holding(running_deployment()), "a")
    assert (asked["pods"], asked["nodes"]) == ("a", None)


def test_the_kinds_that_tell_of_workloads_are_those_that_make_the_exit():
    from analysis.loading import NECESSARY_KINDS

    assert {resource.id for resource in resources.ALL if resource.kind in KINDS} == NECESSARY_KINDS


KINDS = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"}


def test_help_says_that_survey_writes_nothing():
    from click.testing import CliRunner

    assert "nothing is written" in CliRunner().invoke(main, ["survey", "--help"]).output.replace("\n  ", " ")


def test_the_answer_is_one_document_even_if_there_is_nothing(tmp_path):
    file = manifest(tmp_path / "x.yaml", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    result = run("survey", "-f", file, "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["workloads"]) == (0, [])
    assert "no workload requests a device" in run("survey", "-f", file).stdout


def test_a_request_that_the_api_server_refuses_is_reported_once_by_its_key():
    [workload] = look(running_pod("p", limited(nvidia_gpu="0.5"))).workloads
    [key] = workload.keys
    assert (key.container, key.key, key.amount, key.outcome, key.code) == (
        "main",
        "nvidia.com/gpu",
        "0.5",
        Outcome.REFUSED,
        "R001",
    )


def test_a_refusal_that_is_about_no_key_is_told_without_one():
    seen = look({name: value for name, value in running_pod("p", HAMI).items() if name != "apiVersion"})
    lines = lines_of(seen, whole=True)
    assert not [line for line in lines if line.endswith(",") or ": :" in line or "pod: " in line]
    printed_lines = [line.split(maxsplit=3) for line in lines]
    assert ["refused", "1", "1", "the API server refuses it: the object has no apiVersion [D008]"] in printed_lines
    assert any(
        finding.message.startswith("the API server refuses it") for of in findings(seen) for finding in of.findings
    )


def test_a_repository_is_surveyed_without_its_templates_and_other_files(tmp_path):
    """A chart's templates and a workflow are counted, as `check` counts them; they are no broken input."""
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "templates" / "deployment.yaml").write_text(
        "{{- if .Values.on }}\nkind: Deployment\n{{- end }}\n"
    )
    (tmp_path / "workflow.yml").write_text("on: push\njobs: {}\n")
    manifest(tmp_path / "app.yaml", maker("Deployment", "web", limited(nvidia_gpu=1)))
    code, answer = run_json("survey", "-f", tmp_path, "--fail-on", "never")
    assert code == 0
    assert [(workload["name"], workload["outcome"]) for workload in answer["workloads"]] == [("web", "translated")]
    assert sorted((skip["file"].rpartition("/")[2], skip["reason"]) for skip in answer["passedBy"]) == [
        ("deployment.yaml", "template"),
        ("workflow.yml", "other"),
    ]


def test_placeholders_of_an_object_are_one_reason(tmp_path):
    """A manifest for envsubst has its placeholders in many fields; what is wrong is one thing, and what helps is known."""
    web = maker("Deployment", "${NAME}", limited(nvidia_gpu=1), labels={"app": "${NAME}"})
    web["metadata"]["namespace"] = "${NAMESPACE}"
    _, answer = run_json("survey", "-f", manifest(tmp_path / "app.yaml", web), "--fail-on", "never")
    (workload,) = answer["workloads"]
    assert [(key["code"], key["detail"]) for key in workload["keys"] if key.get("code")] == [
        ("D011", "${NAME} is a placeholder that is not filled in")
    ]


def test_an_obstacle_is_written_as_other_findings_are():
    seen = look(*running_deployment(), plugin_on_nodes())
    lines = lines_of(seen)
    at = lines.index("In the way")
    assert lines[at + 1 : at + 4] == [
        "DaemonSet/a/plugin",
        "  info S015: it registers with kubelet as a device plugin, ready on 0 nodes",
        "      keep it off a node (node selector, affinity) once the pods there have moved",
    ]
