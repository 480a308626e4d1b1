"""Objects about which the commands once disagreed, with the answer that all commands have to give."""

from cluster import manifests
from dra.objects.extended_resources import IMPLICIT
from tests.agreement import Scene
from tests.cli.agreement_scenes import (
    EMPTY_CONFIGURATION,
    FENCED_CONFIGURATION,
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
IN_POOL_X = {"nodeSelector": {"pool": "x"}}
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
GPU_LEFT_TO_THE_SCHEDULER = ONE_GPU | {"metadata": {"annotations": {"drawbridge.dev/extended-resources": "leave"}}}
EXAMPLE_FLEET = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
NODE_IN_POOL_X, NODE_WITH_FPGA = node("x", {"pool": "x"}), node("b", **{FPGA: 1})
# The pod's own claim c, and a GPU. The node selector allows only the node in pool x, and the affinity excludes this node.
CLAIM_AND_GPU = pod_template(limits(gpu="1") | {"claims": [{"name": "x"}]}, **OWN_CLAIM)
CLAIM_AND_GPU_IN_POOL_X = {
    "metadata": {},
    "spec": CLAIM_AND_GPU["spec"] | IN_POOL_X | {"affinity": {"nodeAffinity": NOT_IN_POOL_X}},
}
# A DeviceClass and a driver serve GPUs on node a in pool x, and so does a device plugin.
FLEET_WITH_DRIVER_AND_PLUGIN = (
    *(obj for obj in migrated_fleet("a", extended=GPU) if obj["kind"] != "Node"),
    node("a", {"pool": "x"}, gpu=8),
)


def scene(template, *surroundings, kind=POD, fleet=(), configuration=None, **metadata):
    """Return the scene of an object whose pods have this template."""
    return Scene(object_of_kind(*kind, template, **metadata), surroundings, fleet, configuration)


def served(template, *surroundings, fleet=(), **fields):
    """Return a scene in whose fleet a DeviceClass serves GPUs by its extended resource name."""
    return scene(template, *surroundings, fleet=[*FLEET_THAT_SERVES_GPUS, *fleet], **fields)


def translated(template, *surroundings, configuration=WHOLE_GPU_CONFIGURATION, **fields):
    """Return a scene in whose fleet a driver publishes GPUs, with a configuration that translates requests for whole GPUs."""
    return scene(template, *surroundings, fleet=FLEET_WITH_DRIVER, configuration=configuration, **fields)


def of_keys(amounts, **fields):
    """Return the scene of a pod with these limits."""
    return scene(pod_template({"limits": amounts}), **fields)


NINE_GPUS, HALF_GPU, NO_QUANTITY = (pod_template(limits(gpu=amount)) for amount in ("9", "500m", "abc"))
HUNDRED_GPUS = pod_template(limits(gpu="100"))
REFUSE_UNRESOLVED = EMPTY_CONFIGURATION | {"unresolved": "refuse"}
# Each name stands for three expected answers about the object of a scene, and the scene:
# - the outcome that `translate` reports (docs/translation.md defines the outcomes),
# - a finding code that `translate` reports, or "" if the test expects none in particular,
# - True if `simulate` finds a node for every pod, False if it finds none for any pod, None otherwise (such as for a refused pod).
NAMED_SCENES = {
    "a plugin's key that no node has": ("left", "D222", False, scene(ONE_GPU, fleet=FLEET_WITHOUT_GPUS)),
    "a key that drawbridge does not know": ("unknown", "D211", False, scene(pod_template(limits(fpga="1")))),
    "a label that no node has": ("translated", "D212", False, translated(pod_template(limits(gpu="1"), **IN_POOL_X))),
    "mode off, in a Namespace that follows the pod in the file": ("left", "", False, translated(ONE_GPU, namespace("off"))),
    "a mode label that is not a text": ("left", "", False, translated(ONE_GPU, namespace(False))),
    "a mode label that is not a text, in the file of the fleet": ("left", "", False, scene(ONE_GPU, fleet=[*FLEET_WITH_DRIVER, namespace(False)], configuration=WHOLE_GPU_CONFIGURATION)),
    "a served key and a key that no node has, in mode off": ("left", "", False, served(pod_template({"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}}), namespace("off"), configuration=WHOLE_GPU_CONFIGURATION)),
    "a served key, in mode off": ("left", "", True, served(ONE_GPU, namespace("off"), configuration=WHOLE_GPU_CONFIGURATION)),
    "more GPUs than a node has": ("refused", "R023", None, translated(NINE_GPUS)),
    "more GPUs than a node has, in mode observe": ("left", "R023", False, translated(NINE_GPUS, namespace("observe"))),
    "more GPUs than a node has, with a misspelt mode": ("left", "R023", False, translated(NINE_GPUS, namespace("Enforce"))),
    "more GPUs than a node has, in mode enforce of the namespace alone": ("refused", "R023", None, translated(NINE_GPUS, namespace("enforce"), configuration=WHOLE_GPU_CONFIGURATION | {"mode": "observe"})),
    "a key of nodes on which the pod cannot run": ("left", "D221", False, scene(pod_template(limits(fpga="1"), **IN_POOL_X), fleet=(NODE_WITH_FPGA, NODE_IN_POOL_X))),
    "an amount of 0 of a key that only other nodes have": ("silent", "", True, scene(pod_template(limits(fpga="0"), **IN_POOL_X), fleet=(NODE_WITH_FPGA, NODE_IN_POOL_X))),
    "an amount of null of a key that only other nodes have": ("silent", "", True, scene(pod_template(limits(fpga=None), **IN_POOL_X), fleet=(NODE_WITH_FPGA, NODE_IN_POOL_X))),
    "a claim for more devices than the node has, and a served key": ("refused", "R023", None, scene(CLAIM_AND_GPU_IN_POOL_X, claim("c", 9), fleet=FLEET_WITH_DRIVER_AND_PLUGIN)),
    "a claim for more devices than a claim can hold, and a key of drivers and plugins": ("served", "", False, served(CLAIM_AND_GPU, claim("c", 40), kind=JOB, fleet=[node("b", gpu=1), node("d", gpu=1)])),
    "Koordinator's label about shares of GPUs, and a served key": ("served", "", True, served(GPU_WITH_SHARE_LABEL, kind=JOB)),
    "Koordinator's label about shares of GPUs, without a request": ("silent", "", True, served(SHARE_LABEL_WITHOUT_GPU)),
    "a network annotation without a request": ("silent", "", True, scene(NETWORK_ANNOTATION, kind=JOB, fleet=FLEET_WITH_DRIVER)),
    "half a device": ("refused", "R001", None, scene(HALF_GPU)),
    "a share of a device of unknown size": ("refused", "R006", None, of_keys({"koordinator.sh/gpu": "1"}, configuration=REFUSE_UNRESOLVED)),
    "a request without a limit": ("refused", "R001", None, scene(pod_template({"requests": {GPU: "1"}}))),
    "a GPU and a key that drawbridge does not know": ("partly", "D211", False, translated(GPU_AND_FPGA)),
    "a whole GPU and a key that Koordinator sums over the pod": ("partly", "", False, translated(GPU_AND_SUMMED_KEY)),
    "a key that a DeviceClass serves by its extended resource name": ("served", "", True, served(ONE_GPU)),
    "a served key and a plugin's key of another node": ("left", "", False, served(GPU_AND_FPGA, fleet=[NODE_WITH_FPGA])),
    "two keys that the plugins of one node have": ("left", "", True, served(GPU_AND_FPGA, fleet=[node("b", gpu=1, **{FPGA: 1})])),
    "a key that only the bridge serves, left to another scheduler": ("left", "D218", False, served(GPU_LEFT_TO_THE_SCHEDULER, configuration=FENCED_CONFIGURATION)),
    "the implicit key of a class that only the bridge serves": ("left", "D218", False, served(pod_template({"limits": {f"{IMPLICIT}gpu.nvidia.com": "1"}}), configuration=FENCED_CONFIGURATION)),
    "a key that only the bridge serves": ("translated", "", True, served(ONE_GPU, configuration=FENCED_CONFIGURATION)),
    "a workload of an unknown kind": ("translated", "", True, translated(ONE_GPU, kind=TRAINING)),
    "keys that Kueue counts": ("translated", "", True, translated(ONE_GPU, kind=JOB, labels=QUEUE_LABEL)),
    "a Deployment whose pods Kueue counts one by one": ("left", "", False, translated(ONE_GPU, kind=("apps/v1", "Deployment"), labels=QUEUE_LABEL)),
    "half a device in a workload of an unknown kind": ("refused", "R001", None, scene(HALF_GPU, namespace("observe"), kind=TRAINING)),
    "pod-level resources in a JobSet": ("refused", "R001", None, scene(POD_LEVEL_GPU, kind=JOBSET)),
    "an amount that is no quantity": ("refused", "D001", None, translated(NO_QUANTITY)),
    "an amount that is no quantity, in a pod with a nodeName": ("refused", "D001", None, translated(pod_template(limits(gpu="abc"), nodeName="a"), configuration=None)),
    "an amount that is no quantity, in a workload": ("refused", "D001", None, translated(NO_QUANTITY, kind=JOB)),
    "a placeholder and a refused key": ("refused", "D011", None, of_keys({"koordinator.sh/gpu": "1", "vpc.amazonaws.com/pod-eni": "${N}"}, configuration=REFUSE_UNRESOLVED)),
    "a placeholder as an amount": ("unknown", "D011", False, scene(GPU_PLACEHOLDER)),
    "a misspelt key with a placeholder": ("unknown", "D211", False, of_keys({"nvdia.com/gpu": "${GPUS}"})),
    "the pod's own claims, and a label that no node has": ("left", "D212", False, scene(pod_template({}, **IN_POOL_X, **OWN_CLAIM), kind=JOB, fleet=FLEET_WITH_DRIVER)),
    "two keys that no node can serve together, in a RayCluster": ("refused", "R020", None, scene(KEYS_OF_DIFFERENT_NODES, kind=RAY_CLUSTER, fleet=EXAMPLE_FLEET)),
    "more GPUs than a node has, in a pod with a nodeName": ("left", "", None, translated(pod_template(limits(gpu="9"), nodeName="a"))),
    "more devices than a claim can hold, with `impossible: warn`": ("served", "R023", False, served(HUNDRED_GPUS, configuration=WARNING_CONFIGURATION)),
    "more devices than a claim can hold, in a RayCluster with `impossible: warn`": ("translated", "R023", None, translated(HUNDRED_GPUS, kind=RAY_CLUSTER, configuration=WHOLE_GPU_CONFIGURATION | WARNING_CONFIGURATION)),
    "an amount of null": ("silent", "", True, scene(pod_template(limits(gpu=None)), fleet=FLEET_WITHOUT_GPUS)),
    "an amount of 0": ("silent", "", True, scene(pod_template(limits(gpu="0")), fleet=FLEET_WITHOUT_GPUS)),
    "an amount of 0 of a key that a claim never replaces": ("silent", "", True, of_keys({"gpu.intel.com/i915_monitoring": "0"}, fleet=FLEET_WITHOUT_GPUS)),
    "an amount of 0 of a key that stays with its device plugin": ("silent", "", True, of_keys({"kunlunxin.com/vxpu-memory": "0"}, fleet=FLEET_WITHOUT_GPUS)),
    "a misspelt key with an amount of 0": ("silent", "", True, of_keys({"nvidia.com/gpus": "0"}, fleet=FLEET_WITHOUT_GPUS)),
    "an amount of 0 of a key without a class, and a key that nodes have": ("left", "", True, of_keys({GPU: "1", "nvidia.com/gpumem": "0"}, fleet=(node("b", gpu=2),))),
    "an amount of null, and a key that stays": ("left", "", True, of_keys({"koordinator.sh/fpga": None, FPGA: "1"}, fleet=(NODE_WITH_FPGA,))),
}  # fmt: skip
