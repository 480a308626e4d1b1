"""Objects about which the commands once disagreed, with the answer that all commands have to give."""

from cluster import manifests
from tests.agreement import Scene
from tests.cli.agreement_scenes import (
    EMPTY_CONFIGURATION,
    FLEET_THAT_SERVES_GPUS,
    FLEET_WITH_DRIVER,
    FLEET_WITHOUT_GPUS,
    FPGA,
    GPU_AND_FPGA,
    GPU_PLACEHOLDER,
    JOB,
    JOBSET,
    NOT_IN_POOL_X,
    ONE_GPU,
    POD,
    POD_LEVEL_GPU,
    RAY_CLUSTER,
    TRAINING,
    WARNING_CONFIGURATION,
    WHOLE_GPU_CONFIGURATION,
    limits,
    namespace,
    object_of_kind,
    pod_template,
)
from tests.cli.agreement_worlds import claim
from tests.corpus.move import GPU, migrated_fleet, node
from tests.webhook.pods import EXAMPLES

QUEUE_LABEL = {"kueue.x-k8s.io/queue-name": "q"}
GPU_IN_POOL_X = pod_template(limits(gpu="1"), nodeSelector={"pool": "x"})
OWN_CLAIM = {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
# A key that a DeviceClass serves, and a key for a share of a GPU. Each key has devices on some nodes of the example fleet, but no node has
# devices for both.
KEYS_OF_DIFFERENT_NODES = pod_template(limits(gpu="1"))
KEYS_OF_DIFFERENT_NODES["spec"]["initContainers"] = [
    {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}
]
# A container with whole devices, and a container with a key that Koordinator sums over the pod.
GPU_AND_SUMMED_KEY = pod_template(limits(gpu="1"))
GPU_AND_SUMMED_KEY["spec"]["containers"].append(
    {"name": "d", "image": "i", "resources": {"limits": {"huawei.com/npu-core": "100"}}}
)
NETWORK_ANNOTATION = pod_template({}) | {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "a/b"}}}
GPU_WITH_SHARE_LABEL, SHARE_LABEL_WITHOUT_GPU = (
    template | {"metadata": {"labels": {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}}}
    for template in (ONE_GPU, pod_template({}))
)
EXAMPLE_FLEET = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
NODE_IN_POOL_X = node("x", {"pool": "x"})
# The pod's own claim c, and a GPU. The node selector allows only the node in pool x, and the affinity excludes this node.
CLAIM_AND_GPU_IN_POOL_X = pod_template(
    limits(gpu="1") | {"claims": [{"name": "x"}]},
    nodeSelector={"pool": "x"},
    affinity={"nodeAffinity": NOT_IN_POOL_X},
    **OWN_CLAIM,
)
# A DeviceClass and a driver serve GPUs on node a in pool x, and so does a device plugin.
FLEET_WITH_DRIVER_AND_PLUGIN = (
    *(obj for obj in migrated_fleet("a", extended=GPU) if obj["kind"] != "Node"),
    node("a", {"pool": "x"}, gpu=8),
)
CLAIM_AND_GPU = pod_template(limits(gpu="1") | {"claims": [{"name": "x"}]}, **OWN_CLAIM)
# Each name stands for a scene and three expected answers about its object:
# - the outcome that `translate` reports (docs/translation.md defines the outcomes),
# - a finding code that `translate` reports, or "" if the test expects none in particular,
# - True if `simulate` finds a node for every pod, False if it finds none for any pod, None otherwise (such as for a refused pod).
NAMED_SCENES = {
    "a plugin's key that no node has": (
        Scene(object_of_kind(*POD, ONE_GPU), (), FLEET_WITHOUT_GPUS),
        "left",
        "D222",
        False,
    ),
    "a key that drawbridge does not know": (
        Scene(object_of_kind(*POD, pod_template(limits(fpga="1")))),
        "unknown",
        "D211",
        False,
    ),
    "a label that no node has": (
        Scene(object_of_kind(*POD, GPU_IN_POOL_X), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "translated",
        "D212",
        False,
    ),
    "mode off, in a Namespace that follows the pod in the file": (
        Scene(object_of_kind(*POD, ONE_GPU), [namespace("off")], FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "left",
        "",
        False,
    ),
    "a mode label that is not a text": (
        Scene(object_of_kind(*POD, ONE_GPU), [namespace(False)], FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "left",
        "",
        False,
    ),
    "a mode label that is not a text, in the file of the fleet": (
        Scene(object_of_kind(*POD, ONE_GPU), (), [*FLEET_WITH_DRIVER, namespace(False)], WHOLE_GPU_CONFIGURATION),
        "left",
        "",
        False,
    ),
    "a served key and a key that no node has, in mode off": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}})),
            [namespace("off")],
            FLEET_THAT_SERVES_GPUS,
            WHOLE_GPU_CONFIGURATION,
        ),
        "left",
        "",
        False,
    ),
    "a served key, in mode off": (
        Scene(object_of_kind(*POD, ONE_GPU), [namespace("off")], FLEET_THAT_SERVES_GPUS, WHOLE_GPU_CONFIGURATION),
        "left",
        "",
        True,
    ),
    "a key of nodes on which the pod cannot run": (
        Scene(
            object_of_kind(*POD, pod_template(limits(fpga="1"), nodeSelector={"pool": "x"})),
            (),
            (node("b", **{FPGA: 1}), NODE_IN_POOL_X),
        ),
        "left",
        "D221",
        False,
    ),
    "an amount of 0 of a key that only other nodes have": (
        Scene(
            object_of_kind(*POD, pod_template(limits(fpga="0"), nodeSelector={"pool": "x"})),
            (),
            (node("b", **{FPGA: 1}), NODE_IN_POOL_X),
        ),
        "left",
        "",
        True,
    ),
    "a claim for more devices than the node has, and a served key": (
        Scene(object_of_kind(*POD, CLAIM_AND_GPU_IN_POOL_X), [claim("c", 9)], FLEET_WITH_DRIVER_AND_PLUGIN),
        "refused",
        "R023",
        None,
    ),
    "a claim for more devices than a claim can hold, and a key of drivers and plugins": (
        Scene(
            object_of_kind(*JOB, CLAIM_AND_GPU),
            [claim("c", 40)],
            [*FLEET_THAT_SERVES_GPUS, node("b", gpu=1), node("d", gpu=1)],
        ),
        "served",
        "",
        False,
    ),
    "Koordinator's label about shares of GPUs, and a served key": (
        Scene(object_of_kind(*JOB, GPU_WITH_SHARE_LABEL), (), FLEET_THAT_SERVES_GPUS),
        "served",
        "",
        True,
    ),
    "Koordinator's label about shares of GPUs, without a request": (
        Scene(object_of_kind(*POD, SHARE_LABEL_WITHOUT_GPU), (), FLEET_THAT_SERVES_GPUS),
        "silent",
        "",
        True,
    ),
    "a network annotation without a request": (
        Scene(object_of_kind(*JOB, NETWORK_ANNOTATION), (), FLEET_WITH_DRIVER),
        "silent",
        "",
        True,
    ),
    "half a device": (Scene(object_of_kind(*POD, pod_template(limits(gpu="500m")))), "refused", "R001", None),
    "a share of a device of unknown size": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {"koordinator.sh/gpu": "1"}})),
            (),
            (),
            EMPTY_CONFIGURATION | {"unresolved": "refuse"},
        ),
        "refused",
        "R006",
        None,
    ),
    "a request without a limit": (
        Scene(object_of_kind(*POD, pod_template({"requests": {GPU: "1"}}))),
        "refused",
        "R001",
        None,
    ),
    "a GPU and a key that drawbridge does not know": (
        Scene(object_of_kind(*POD, GPU_AND_FPGA), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "partly",
        "D211",
        False,
    ),
    "a whole GPU and a key that Koordinator sums over the pod": (
        Scene(object_of_kind(*POD, GPU_AND_SUMMED_KEY), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "partly",
        "",
        False,
    ),
    "a key that a DeviceClass serves by its extended resource name": (
        Scene(object_of_kind(*POD, ONE_GPU), (), FLEET_THAT_SERVES_GPUS),
        "served",
        "",
        True,
    ),
    "a served key and a plugin's key of another node": (
        Scene(object_of_kind(*POD, GPU_AND_FPGA), (), [*FLEET_THAT_SERVES_GPUS, node("b", **{FPGA: 1})]),
        "left",
        "",
        False,
    ),
    "two keys that the plugins of one node have": (
        Scene(object_of_kind(*POD, GPU_AND_FPGA), (), [*FLEET_THAT_SERVES_GPUS, node("b", gpu=1, **{FPGA: 1})]),
        "left",
        "",
        True,
    ),
    "a workload of an unknown kind": (
        Scene(object_of_kind(*TRAINING, ONE_GPU), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "translated",
        "",
        True,
    ),
    "keys that Kueue counts": (
        Scene(object_of_kind(*JOB, ONE_GPU, labels=QUEUE_LABEL), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "translated",
        "",
        True,
    ),
    "a Deployment whose pods Kueue counts one by one": (
        Scene(
            object_of_kind("apps/v1", "Deployment", ONE_GPU, labels=QUEUE_LABEL),
            (),
            FLEET_WITH_DRIVER,
            WHOLE_GPU_CONFIGURATION,
        ),
        "left",
        "",
        False,
    ),
    "half a device in a workload of an unknown kind": (
        Scene(object_of_kind(*TRAINING, pod_template(limits(gpu="500m"))), [namespace("observe")]),
        "refused",
        "R001",
        None,
    ),
    "pod-level resources in a JobSet": (Scene(object_of_kind(*JOBSET, POD_LEVEL_GPU)), "refused", "R001", None),
    "an amount that is no quantity": (
        Scene(object_of_kind(*POD, pod_template(limits(gpu="abc"))), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "refused",
        "D001",
        None,
    ),
    "an amount that is no quantity, in a pod with a nodeName": (
        Scene(object_of_kind(*POD, pod_template(limits(gpu="abc"), nodeName="a")), (), FLEET_WITH_DRIVER),
        "refused",
        "D001",
        None,
    ),
    "an amount that is no quantity, in a workload": (
        Scene(object_of_kind(*JOB, pod_template(limits(gpu="abc"))), (), FLEET_WITH_DRIVER, WHOLE_GPU_CONFIGURATION),
        "refused",
        "D001",
        None,
    ),
    "a placeholder and a refused key": (
        Scene(
            object_of_kind(
                *POD, pod_template({"limits": {"koordinator.sh/gpu": "1", "vpc.amazonaws.com/pod-eni": "${N}"}})
            ),
            (),
            (),
            EMPTY_CONFIGURATION | {"unresolved": "refuse"},
        ),
        "refused",
        "D011",
        None,
    ),
    "a placeholder as an amount": (Scene(object_of_kind(*POD, GPU_PLACEHOLDER)), "unknown", "D011", False),
    "a misspelt key with a placeholder": (
        Scene(object_of_kind(*POD, pod_template({"limits": {"nvdia.com/gpu": "${GPUS}"}}))),
        "unknown",
        "D211",
        False,
    ),
    "the pod's own claims, and a label that no node has": (
        Scene(object_of_kind(*JOB, pod_template({}, nodeSelector={"pool": "x"}, **OWN_CLAIM)), (), FLEET_WITH_DRIVER),
        "left",
        "D212",
        False,
    ),
    "two keys that no node can serve together, in a RayCluster": (
        Scene(object_of_kind(*RAY_CLUSTER, KEYS_OF_DIFFERENT_NODES), (), EXAMPLE_FLEET),
        "refused",
        "R020",
        None,
    ),
    "more GPUs than a node has, in a pod with a nodeName": (
        Scene(
            object_of_kind(*POD, pod_template(limits(gpu="9"), nodeName="a")),
            (),
            FLEET_WITH_DRIVER,
            WHOLE_GPU_CONFIGURATION,
        ),
        "left",
        "",
        None,
    ),
    "more devices than a claim can hold, with `impossible: warn`": (
        Scene(object_of_kind(*POD, pod_template(limits(gpu="100"))), (), FLEET_THAT_SERVES_GPUS, WARNING_CONFIGURATION),
        "served",
        "R023",
        False,
    ),
    "more devices than a claim can hold, in a RayCluster with `impossible: warn`": (
        Scene(
            object_of_kind(*RAY_CLUSTER, pod_template(limits(gpu="100"))),
            (),
            FLEET_WITH_DRIVER,
            WHOLE_GPU_CONFIGURATION | WARNING_CONFIGURATION,
        ),
        "translated",
        "R023",
        None,
    ),
    "an amount of null": (
        Scene(object_of_kind(*POD, pod_template(limits(gpu=None))), (), FLEET_WITHOUT_GPUS),
        "silent",
        "",
        True,
    ),
    "an amount of 0": (
        Scene(object_of_kind(*POD, pod_template(limits(gpu="0"))), (), FLEET_WITHOUT_GPUS),
        "silent",
        "",
        True,
    ),
    "an amount of 0 of a key that a claim never replaces": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {"gpu.intel.com/i915_monitoring": "0"}})),
            (),
            FLEET_WITHOUT_GPUS,
        ),
        "silent",
        "",
        True,
    ),
    "an amount of 0 of a key that stays with its device plugin": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {"kunlunxin.com/vxpu-memory": "0"}})), (), FLEET_WITHOUT_GPUS
        ),
        "silent",
        "",
        True,
    ),
    "a misspelt key with an amount of 0": (
        Scene(object_of_kind(*POD, pod_template({"limits": {"nvidia.com/gpus": "0"}})), (), FLEET_WITHOUT_GPUS),
        "unknown",
        "D211",
        True,
    ),
    "an amount of 0 of a key without a class, and a key that nodes have": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {GPU: "1", "nvidia.com/gpumem": "0"}})),
            (),
            (node("b", gpu=2),),
        ),
        "left",
        "",
        True,
    ),
    "an amount of null, and a key that stays": (
        Scene(
            object_of_kind(*POD, pod_template({"limits": {"koordinator.sh/fpga": None, FPGA: "1"}})),
            (),
            (node("b", **{FPGA: 1}),),
        ),
        "left",
        "",
        True,
    ),
}
