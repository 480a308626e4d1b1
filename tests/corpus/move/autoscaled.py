"""Autoscalers that do not consider claims: the messages about a pod, and the rule that leaves the pod untranslated."""

from tests import objects
from tests.corpus.move import GPU, Case, migrated_fleet, requesting_pod
from tests.corpus.move.plugins import config_map, container_of

LEAVE_AUTOSCALED = {"extendedResources": {"autoscaled": "leave"}}
NO_NODE_FOR_CLAIMS = "creates no node for a pod with claims"
REMEDY = "set --ignore-dra-requests=false"


def pool(name="gpu", labels=None, requirements=(), taints=(), version="v1"):
    spec = {"requirements": list(requirements), "taints": list(taints)}
    template = {"metadata": {"labels": labels or {}}, "spec": spec}
    return objects.obj("NodePool", name, f"karpenter.sh/{version}", template=template)


def deployment(image, *args, namespace="kube-system", **env):
    container = container_of(image, *args, **env)
    return objects.workload("Deployment", "x", {"containers": [container]}, namespace=namespace)


def karpenter(version="1.8.1", *args, **env):
    return deployment(f"public.ecr.aws/karpenter/controller:{version}@sha256:00", *args, **env)


def scaler(version, *args):
    return deployment(f"registry.k8s.io/autoscaling/cluster-autoscaler:v{version}", *args)


def requirement(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def pod_selecting(**labels):
    return requesting_pod(
        nodeSelector={key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    )


TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}
STATUS = (
    "time: x\nautoscalerStatus: Running\nnodeGroups:\n- {name: gpu-a, health: {cloudProviderTarget: 0, maxSize: 4}}\n"
)
DRA_FLAG = "--enable-dynamic-resource-allocation"
FLEET_THAT_SERVES_THE_KEY = migrated_fleet("a", extended=GPU)

CASES = [
    # Karpenter
    Case("a pod and a NodePool", requesting_pod(), "translated", (NO_NODE_FOR_CLAIMS, "NodePool gpu", REMEDY), [pool()]),
    Case("a pod without an autoscaler", requesting_pod(), "translated", never="node for a pod"),
    Case("a NodePool of version v1beta1", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [pool(version="v1beta1")]),
    Case("a NodePool of another project", requesting_pod(), "translated", (), [pool() | {"apiVersion": "example.com/v1"}], never=NO_NODE_FOR_CLAIMS),
    Case("Karpenter with its default settings", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [pool(), karpenter()]),
    Case("Karpenter with a flag to consider claims", requesting_pod(), "translated", (), [pool(), karpenter("1.8.1", "--ignore-dra-requests=false")], never="Karpenter"),
    Case("Karpenter with a variable to consider claims", requesting_pod(), "translated", (), [pool(), karpenter(IGNORE_DRA_REQUESTS="false")], never="Karpenter"),
    Case("Karpenter's flag overrides its variable", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [pool(), karpenter("1.8.1", "--ignore-dra-requests=true", IGNORE_DRA_REQUESTS="false")]),
    Case("a Karpenter version that ignores claims", requesting_pod(), "translated", ("ignores claims when it creates nodes", "upgrade it"), [pool(), karpenter("1.6.3")]),
    Case("the variable with a Karpenter version that does not read it", requesting_pod(), "translated", "upgrade it and set --ignore-dra-requests=false", [pool(), karpenter("1.6.3", IGNORE_DRA_REQUESTS="false")]),
    Case("Karpenter without a NodePool", requesting_pod(), "translated", (), [karpenter()], never="Karpenter"),
    Case("a pod without devices", requesting_pod(0), "silent", (), [pool()]),
    Case("a pod that stays untranslated gets no message about autoscalers", requesting_pod(), "left", (), [pool(), config_map(any={"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 2}]}}})], never=NO_NODE_FOR_CLAIMS),
    # NodePools that the pod can or cannot use
    Case("pinned to a label that resembles Karpenter's", pod_selecting(karpenter_sh__nodepool="x"), "translated", (), [pool()], never="node for"),
    Case("pinned to the name of the NodePool", requesting_pod(nodeSelector={"karpenter.sh/nodepool": "gpu"}), "translated", NO_NODE_FOR_CLAIMS, [pool()]),
    Case("pinned to the name of another NodePool", requesting_pod(nodeSelector={"karpenter.sh/nodepool": "x"}), "translated", (), [pool()], never=NO_NODE_FOR_CLAIMS),
    Case("pinned to a label of the NodePool", requesting_pod(nodeSelector={"team": "a"}), "translated", NO_NODE_FOR_CLAIMS, [pool(labels={"team": "a"})]),
    Case("pinned to another value of the NodePool's label", requesting_pod(nodeSelector={"team": "b"}), "translated", (), [pool(labels={"team": "a"})], never=NO_NODE_FOR_CLAIMS),
    Case("pinned to a label of no NodePool", requesting_pod(nodeSelector={"team": "b"}), "translated", (), [pool()], never=NO_NODE_FOR_CLAIMS),
    Case("pinned to a label of the cloud provider", requesting_pod(nodeSelector={"node.kubernetes.io/instance-type": "p4d"}), "translated", NO_NODE_FOR_CLAIMS, [pool()]),
    Case("a NodePool that allows the pod's instance type", requesting_pod(nodeSelector={"node.kubernetes.io/instance-type": "p4d"}), "translated", NO_NODE_FOR_CLAIMS, [pool(requirements=[requirement("node.kubernetes.io/instance-type", "In", "p4d", "p5")])]),
    Case("a NodePool that does not allow the pod's instance type", requesting_pod(nodeSelector={"node.kubernetes.io/instance-type": "g5"}), "translated", (), [pool(requirements=[requirement("node.kubernetes.io/instance-type", "In", "p4d")])], never=NO_NODE_FOR_CLAIMS),
    Case("a NodePool that excludes the pod's architecture", requesting_pod(nodeSelector={"kubernetes.io/arch": "arm64"}), "translated", (), [pool(requirements=[requirement("kubernetes.io/arch", "NotIn", "arm64")])], never=NO_NODE_FOR_CLAIMS),
    Case("pinned to the host name of a node", requesting_pod(nodeSelector={"kubernetes.io/hostname": "n"}), "translated", (), [pool()], never=NO_NODE_FOR_CLAIMS),
    Case("a NodePool with a taint that the pod does not tolerate", requesting_pod(), "translated", (), [pool(taints=[TAINT])], never=NO_NODE_FOR_CLAIMS),
    Case("a NodePool with a taint that the pod tolerates", requesting_pod(tolerations=[{"key": GPU, "operator": "Exists"}]), "translated", NO_NODE_FOR_CLAIMS, [pool(taints=[TAINT])]),
    Case("pinned to a label of the second NodePool", requesting_pod(nodeSelector={"team": "b"}), "translated", "NodePool two", [pool("one", {"team": "a"}), pool("two", {"team": "b"})]),
    Case("a NodePool with malformed requirements", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [pool(requirements=[{"key": 1, "operator": None, "values": "x"}])]),
    Case("a NodePool with malformed taints", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [pool(taints=[{"key": 1}])]),
    # The rule `extendedResources.autoscaled`
    Case("the rule leaves a pod that Kubernetes serves by extendedResourceName", requesting_pod(), "left", "through extendedResourceName", [*FLEET_THAT_SERVES_THE_KEY, pool()], LEAVE_AUTOSCALED),
    Case("without the rule, Kubernetes also serves the pod by extendedResourceName", requesting_pod(), "left", "through extendedResourceName", [*FLEET_THAT_SERVES_THE_KEY, pool()]),
    Case("the rule overrides the default translate", requesting_pod(), "left", "through extendedResourceName", [*FLEET_THAT_SERVES_THE_KEY, pool()], {"extendedResources": {"default": "translate", "autoscaled": "leave"}}),
    Case("the default translate without the rule", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [*FLEET_THAT_SERVES_THE_KEY, pool()], {"extendedResources": {"default": "translate"}}),
    Case("the rule does not concern a pod that fits no NodePool", requesting_pod(nodeSelector={"team": "b"}), "translated", (), [*migrated_fleet("a", extended=GPU, labels={"team": "b"}), pool(labels={"team": "a"})], {"extendedResources": {"default": "translate", "autoscaled": "leave"}}),
    Case("the setting of the namespace overrides the rule", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [*FLEET_THAT_SERVES_THE_KEY, pool()], {"extendedResources": {"namespaces": {"n": "translate"}, "autoscaled": "leave"}}),
    Case("the rule without a class that serves the key", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [*migrated_fleet("a"), pool()], LEAVE_AUTOSCALED),
    # cluster-autoscaler
    *(
        Case(f"cluster-autoscaler {version} {' '.join(args)}", requesting_pod(), "translated", says, [scaler(version, *args)], never=never)
        for version, args, says, never in (
            ("1.31.2", (), f"cluster-autoscaler 1.31 {NO_NODE_FOR_CLAIMS}", "Karpenter"),
            ("1.31.2", (f"{DRA_FLAG}=true",), NO_NODE_FOR_CLAIMS, "Karpenter"),
            ("1.32.0", (), ("1.32", DRA_FLAG), "Karpenter"),
            ("1.33.1", (f"{DRA_FLAG}=true",), (), NO_NODE_FOR_CLAIMS),
            ("1.33.1", (DRA_FLAG,), (), NO_NODE_FOR_CLAIMS),
            ("1.34.0", (f"{DRA_FLAG}=false",), NO_NODE_FOR_CLAIMS, "Karpenter"),
            ("1.35.0", (), (), NO_NODE_FOR_CLAIMS),
            ("1.36.1", (), (), NO_NODE_FOR_CLAIMS),
        )
    ),
    Case("a cloud provider's build of cluster-autoscaler", requesting_pod(), "translated", NO_NODE_FOR_CLAIMS, [deployment("k8s.gcr.io/cluster-autoscaler:v1.30.1-gke.5")]),
    Case("an image of cluster-autoscaler for one architecture", requesting_pod(), "translated", f"cluster-autoscaler 1.31 {NO_NODE_FOR_CLAIMS}", [deployment("registry.k8s.io/autoscaling/cluster-autoscaler-arm64:v1.31.2")]),
    Case("an image of cluster-autoscaler with a digest for a tag", requesting_pod(), "translated", f"cluster-autoscaler before 1.35 {NO_NODE_FOR_CLAIMS}", [deployment("registry.k8s.io/autoscaling/cluster-autoscaler@sha256:00")]),
    Case("node groups without nodes alone cause no message", requesting_pod(), "translated", (), [config_map("cluster-autoscaler-status", "kube-system", status=STATUS)], never=NO_NODE_FOR_CLAIMS),
]  # fmt: skip
