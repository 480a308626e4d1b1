"""Places that have a key and request nothing, each with the reason; and requests beside them."""

from tests.corpus.move import GPU, Case, Object, requesting_pod
from tests.webhook.pods import pod

TIME_SLICES = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}"
RUNTIME = {"runtimeClassName": "nvidia", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
LIMIT_RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "l"},
    "spec": {"limits": [{"type": "Container", "max": {GPU: 2}}]},
}
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {f"requests.{GPU}": 4}}}  # fmt: skip
POOL = {"k8s.v1.cni.cncf.io/resourceName": "openshift.io/fast"}
DRI = {"volumes": [{"name": "dri", "hostPath": {"path": "/dev/dri"}}]}


def obj(
    version: str, kind: str, spec: Object | None = None, annotations: Object | None = None, **top: object
) -> Object:
    metadata = {"name": "w", "namespace": "n", "annotations": annotations or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **({"spec": spec} if spec else {}), **top}


def release(chart: str, values: Object) -> Object:
    return obj("helm.toolkit.fluxcd.io/v2", "HelmRelease", {"chart": {"spec": {"chart": chart}}, "values": values})


def application(chart: str, values: Object) -> Object:
    return obj("argoproj.io/v1alpha1", "Application", {"source": {"chart": chart, "helm": {"valuesObject": values}}})


def pod_with(key: str = "", **spec: object) -> Object:
    made = requesting_pod(1, key=key) if key else requesting_pod(0)
    return made | {"spec": made["spec"] | spec}


CASES = [
    # Limits.
    Case("limits of nodes of an autoscaler", obj("autoscaling.openshift.io/v1", "ClusterAutoscaler", {"resourceLimits": {"gpus": [{"type": GPU, "min": 0, "max": 16}]}}), "left", "limits the nodes that are created by this key"),
    Case("limits of a Provisioner", obj("karpenter.sh/v1alpha5", "Provisioner", {"limits": {"resources": {GPU: 2}}}), "left", "it limits the nodes"),
    Case("limits of a vertical autoscaler", obj("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", {"resourcePolicy": {"containerPolicies": [{"maxAllowed": {GPU: 2}}]}}), "left", "what an autoscaler sets"),
    Case("a quota in an unknown kind", obj("example.com/v1", "TenantLimits", {"hard": {f"requests.{GPU}": 4}}), "left", "it limits the key"),
    Case("a quota in values of a chart", release("tenant", {"resourceQuota": {"hard": {f"requests.{GPU}": 4}}}), "left", "it limits the key"),
    Case("a request in values of a chart with a quota", release("tenant", {"resourceQuota": {"hard": {f"requests.{GPU}": 4}}, "app": {"resources": {"limits": {GPU: 1}}}}), "left", ("it limits the key", "1 whole GPU")),
    Case("a LimitRange in a Template", obj("template.openshift.io/v1", "Template", objects=[LIMIT_RANGE]), "left", "pods in its namespace keep it", never="creates pods"),
    Case("a quota in a Template", obj("template.openshift.io/v1", "Template", objects=[QUOTA]), "left", "which claims would bypass", never="creates pods"),
    # What a scheduler, a node or a network reads.
    Case("an extender in a scheduler's Policy", obj("v1", "Policy", extenders=[{"managedResources": [{"name": GPU}]}]), "left", "an extender of the scheduler reads it"),
    Case("the pool of a network's definition", obj("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", {"config": "{}"}, POOL), "left", ("openshift.io/fast", "network resources injector")),
    Case("a network's definition without a pool", obj("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", {"config": "{}"}), "silent"),
    Case("capacity of nodes in an unknown kind", obj("example.com/v1", "Rack", {"nodeTemplate": {"allocatable": {GPU: 8}}}), "left", "it describes nodes"),
    Case("a network device of the DPU operator", pod_with("openshift.io/dpu"), "left", "DPU operator", never="nics"),
    Case("an identifier of devices in another project's HardwareProfile", obj("example.org/v1", "HardwareProfile", {"identifiers": [{"identifier": GPU, "minCount": 1}]}), "left", "it offers the key"),
    # What supplies devices.
    Case("parameters of a driver for virtual machines", obj("pci.resource.kubevirt.io/v1alpha1", "DeviceClassParameters", {"resourceName": "nvidia.com/GA102"}), "silent"),
    Case("settings of the GPU operator", obj("nvidia.com/v1", "ClusterPolicy", {"toolkit": RUNTIME}), "silent"),
    Case("values of a device plugin", release("nvidia-device-plugin", RUNTIME | {"config": {"map": {"default": TIME_SLICES}}}), "silent"),
    Case("values of an exporter", release("dcgm-exporter", RUNTIME), "silent"),
    Case("values of an exporter for Argo CD", application("dcgm-exporter", RUNTIME), "silent"),
    Case("values of another chart", release("jellyfin", RUNTIME), "unknown", "runtimeClassName"),
    Case("time slices in an unknown kind", obj("example.com/v1", "Settings", {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 10}]}}}), "silent"),
    Case("a request to compose a node", obj("cro.hpsys.ibm.ie.com/v1alpha1", "ComposabilityRequest", {"resource": {"type": "gpu", "size": 2}, "gpu": {"size": 2}}), "silent"),
    Case("partitions of Instaslice", obj("inference.codeflare.dev/v1alpha1", "Instaslice", {"allocations": {"a": {"gpu": 1, "resources": {"limits": {GPU: 1}}}}}), "silent"),
    # Requests.
    Case("the size of a request in an unknown kind", obj("example.com/v1", "Composition", {"gpu": {"size": 2, "model": "A100"}}), "unknown", "gpu: not checked"),
    Case("an annotation of Tensor Fusion on a workload", obj("apps/v1", "Deployment", {"selector": {}, "template": {"spec": pod({})["spec"]}}, {"tensor-fusion.ai/gpu-count": "1"}), "left", "it is read on pods", never="no dialect knows it"),
    Case("Kueue's copy of a Job", obj("kueue.x-k8s.io/v1beta1", "Workload", {"podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {GPU: 1}}}]}}}]}), "silent"),
    Case("what MCAD counts", obj("workload.codeflare.dev/v1beta1", "AppWrapper", {"resources": {"GenericItems": [{"custompodresources": [{"limits": {GPU: 1}}]}]}}), "silent"),
    Case("a member of the same name in a later version", obj("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"custompodresources": [{"limits": {GPU: 1}}]}]}), "left", "1 whole GPU"),
    *(
        Case(f"{path} of the node without a request", pod_with(volumes=[{"name": "d", "hostPath": {"path": path}}]), "left", (path, "without a request"))
        for path in ("/dev/dri", "/dev/kfd", "/dev/infiniband", "/dev/nvidia0")
    ),
    Case("a device file beside a request", pod_with(GPU, **DRI), "translated", never="without a request"),
    Case("another file of the node", pod_with(volumes=[{"name": "d", "hostPath": {"path": "/dev/shm"}}]), "silent"),
]  # fmt: skip
