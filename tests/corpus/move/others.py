"""Keys that another program reads, and device keys that no dialect (the keys of one system) knows, from public repositories."""

from typing import Any

from tests import objects
from tests.corpus.move import GPU, Case, migrated_fleet, requesting_pod
from tests.webhook.pods import pod

ASCEND, I915, AMD = "huawei.com/Ascend310P", "gpu.intel.com/i915", "amd.com/gpu"
WHOLE_DEVICES_CONFIGURATION = {"meanings": {GPU: "whole", I915: "whole", AMD: "whole"}}
OLARES, KAIWO = "applications.app.bytetrade.io/gpu-inject", "kaiwo.silogen.ai/gpu-preemption.enabled"
NOT_KNOWN = "no dialect knows it"


def pod_with_limits(*limits, **more):
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, **more)}


def pod_with_metadata(key=GPU, amount=1, *, labels=(), annotations=(), **spec):
    obj = requesting_pod(amount, key=key, **spec)
    obj["metadata"] |= {"labels": dict(labels), "annotations": dict(annotations)}
    return obj


def workload(template, **metadata):
    return objects.workload("Deployment", "d", template["spec"], labels={"a": "b"}, **metadata)


def pod_reading_annotation(name, key=ASCEND):
    obj = requesting_pod(1, key=key)
    field = {"fieldPath": f"metadata.annotations['{name}']"}
    obj["spec"]["containers"][0]["env"] = [{"name": "ASCEND_VISIBLE_DEVICES", "valueFrom": {"fieldRef": field}}]
    return obj


def pod_with_variable(name, value="all", *, key):
    obj = requesting_pod(1, key=key)
    obj["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return obj


def pod_mounting(path):
    return requesting_pod(1, volumes=[{"name": "v", "hostPath": {"path": path}}])


def custom_object(kind, spec, api_version="example.org/v1", **metadata):
    return objects.obj(kind, "o", api_version, **spec, **metadata)


KARMADA_PATCH = {
    "plaintext": [
        {
            "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu",
            "operator": "replace",
            "value": "2",
        }
    ]
}
UNCHECKED_OBJECTS: dict[str, tuple[dict[str, Any], str]] = {
    "a count under gpu": (custom_object("Server", {"resources": {"gpu": {"type": "nvidia-l4", "count": 4}}}), "gpu: not checked"),
    "a count under hardware.gpu": (custom_object("Model", {"hardware": {"gpu": {"enabled": True, "count": 1}}}), "gpu: not checked"),
    "a value under gpu": (custom_object("TrainingWorkload", {"gpu": {"value": "0.5"}}), "gpu: not checked"),
    **{
        f"an amount under {name}": (custom_object("Server", {"worker": {name: amount}}), f"{name}: not checked")
        for name, amount in (
            ("vgpu", 1), ("hpu", 8), ("mlu", 2), ("fpgas", 1), ("neuronCores", "8"), ("gpusPerWorker", 4), ("workerGPUs", 4), ("nvidiaGpus", 1),
            ("GPU_COUNT", 4), ("gpuFraction", 0.5), ("gpuMemory", "20Gi"), ("gpus", [{"model": "a", "count": 1}]), ("gpuResources", {"quantity": 1}),
        )
    },
    "an amount of GPU memory": (custom_object("Job", {"gpuMemory": {"value": "5Gi"}}), "gpuMemory: not checked"),
    "a resourceName of another prefix": (custom_object("SpiderMultusConfig", {"macvlan": {"rdmaResourceName": "spidernet.io/mellanoxrdma"}}), "spidernet.io/mellanoxrdma"),
    "a pool of virtual functions": (custom_object("SpiderMultusConfig", {"sriov": {"resourceName": "spidernet.io/sriov_netdevice"}}), "spidernet.io/sriov_netdevice"),
    "a patch of Karmada whose path contains a key": (custom_object("OverridePolicy", {"overrideRules": [{"overriders": KARMADA_PATCH}]}, "policy.karmada.io/v1alpha1"), (GPU, "Karmada, which writes it")),
    "an annotation that recommends a key": (custom_object("ServingRuntime", {}, "serving.kserve.io/v1alpha1", annotations={"example.org/recommended-accelerators": '["nvidia.com/gpu"]'}), "recommended-accelerators"),
}  # fmt: skip
TFLOPS = {"tensor-fusion.ai/tflops-request": "20"}
TENSOR_FUSION = {"tensorfusion": {"fractions": "translate"}}
CASES = [
    # Keys that another program reads.
    Case("a variable that is filled from the annotation of the key", pod_reading_annotation(ASCEND), "left", ("variable ASCEND_VISIBLE_DEVICES", "annotation")),
    Case("a variable that is filled from another annotation", pod_reading_annotation("example.com/note"), "translated"),
    Case("a variable by which Habana's runtime gives every card", pod_with_variable("HABANA_VISIBLE_DEVICES", key="habana.ai/gaudi"), "left", "Habana's runtime"),
    Case("a variable by which Habana's runtime gives none", pod_with_variable("HABANA_VISIBLE_DEVICES", "void", key="habana.ai/gaudi"), "translated"),
    Case("a pod that is a device plugin", pod_mounting("/var/lib/kubelet/device-plugins"), "left", "is a device plugin itself", migrated_fleet("a")),
    Case("a pod that mounts another folder of the node", pod_mounting("/var/lib/other"), "translated", cluster_objects=migrated_fleet("a")),
    *(
        Case(f"GPU Aware Scheduling: {name}", pod_with_metadata(I915, annotations={name: "card0"}), "left", name, configuration=WHOLE_DEVICES_CONFIGURATION)
        for name in ("gas-allow", "gas-deny", "gas-same-gpu", "gas-allocate-xelink", "gas-allocate-single-numa", "gas-container-cards")
    ),
    Case("kaiwo preempts a pod by its key", pod_with_metadata(AMD, annotations={KAIWO: "true"}), "left", "kaiwo", configuration=WHOLE_DEVICES_CONFIGURATION),
    Case("kaiwo does not read NVIDIA's key", pod_with_metadata(annotations={KAIWO: "true"}), "translated", cluster_objects=migrated_fleet("a")),
    Case("kaiwo preempts the pods of a workload by their key", workload(requesting_pod(1, key=AMD), annotations={KAIWO: "true"}), "left", "kaiwo", configuration=WHOLE_DEVICES_CONFIGURATION),
    Case("Olares writes the key into the template again", workload(requesting_pod(1), annotations={OLARES: "true"}), "left", "Olares", migrated_fleet("a")),
    Case("a request of an MLU beside Koordinator's keys", pod_with_limits({"cambricon.com/mlu": 1, "koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 100}, scheduler="koord-scheduler"), "left", "cambricon.com/mlu"),
    Case("a request of an NPU beside Koordinator's keys", pod_with_limits({ASCEND: 1, "koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 100}, scheduler="koord-scheduler"), "left", "Koordinator"),
    Case("KAI's annotation on a pod of another scheduler", pod_with_metadata(amount=0, annotations={"gpu-fraction": "0.5"}), "left", ("gpu-fraction", "does not name the scheduler"), configuration={"kai": {"fractions": "translate"}}),
    Case("Tensor Fusion's annotation on a pod without its label", pod_with_metadata(amount=0, annotations=TFLOPS), "left", ("tflops-request", "does not name the scheduler of Tensor Fusion, and has no label tensor-fusion.ai/enabled"), configuration=TENSOR_FUSION),
    Case("Tensor Fusion's annotations on a pod with its label", pod_with_metadata(amount=0, labels={"tensor-fusion.ai/enabled": "true"}, annotations=TFLOPS | {"tensor-fusion.ai/vram-limit": "8Gi"}), "left", ("depends on the model", "vram-limit: same reason as tensor-fusion.ai/tflops-request"), configuration=TENSOR_FUSION, never="does not name the scheduler"),
    Case("Tensor Fusion's label with a value that has no effect", pod_with_metadata(amount=0, labels={"tensor-fusion.ai/enabled": "false"}), "left", "only the value true has an effect", configuration=TENSOR_FUSION, never="does not name the scheduler"),
    Case("a label of Tensor Fusion that has no effect, and its pods stay", pod_with_metadata(amount=0, labels={"tensor-fusion.ai/enabled": "false"}), "left", "only the value true has an effect", never="its webhook"),
    Case("KAI's annotations that exclude each other", pod_with_metadata(amount=0, annotations={"gpu-fraction": "0.5", "gpu-memory": "8000"}, schedulerName="kai-scheduler"), "refused", "another key of the pod is refused", configuration={"kai": {"fractions": "translate"}}, never="does not name the scheduler"),
    Case("an accelerator for radio is no pool of NICs", requesting_pod(1, key="intel.com/intel_fec_acc100"), "left", "FEC accelerator", never="nics"),
    # Keys that no dialect knows.
    Case("a label of an unknown system", pod_with_metadata(amount=0, labels={"sharedgpu/gpu_request": "0.5"}, schedulerName="kubeshare-scheduler"), "unknown", ("sharedgpu/gpu_request", NOT_KNOWN)),
    Case("an annotation without a domain on a pod of an unknown scheduler", pod_with_metadata(amount=0, annotations={"gpu-share": "1"}, schedulerName="my-scheduler"), "unknown", ("gpu-share", NOT_KNOWN)),
    Case("an annotation without a domain on a pod that is translated", pod_with_metadata(annotations={"gpu-share": "1"}), "translated", ("gpu-share", NOT_KNOWN), migrated_fleet("a")),
    Case("a label without a domain on a pod without devices", pod_with_metadata(amount=0, labels={"gpu-share": "1"}), "silent"),
    Case("a label without a domain on a pod of the default scheduler", pod_with_metadata(amount=0, labels={"gpu-share": "1"}, schedulerName="default-scheduler"), "silent"),
    *(
        Case(f"a key of an unknown program, {field}, on a pod without devices", pod_with_metadata(amount=0, **{field: {"example.com/gpu-note": "x"}}), "silent")
        for field in ("labels", "annotations")
    ),
    Case("a key of an unknown program on a pod of an unknown scheduler", pod_with_metadata(amount=0, annotations={"example.com/gpu-share": "1"}, schedulerName="my-scheduler"), "unknown", ("example.com/gpu-share", NOT_KNOWN)),
    Case("a key of a device vendor on a pod without devices", pod_with_metadata(amount=0, annotations={"nvidia.com/gpu-share": "1"}), "unknown", ("nvidia.com/gpu-share", NOT_KNOWN)),
    Case("the queue that KAI had from Run:ai", pod_with_metadata(labels={"runai/queue": "a"}, schedulerName="kai-scheduler"), "left", "only KAI or Run:ai counts it"),
    Case("a key that Kubernetes removed", pod_with_metadata("alpha.kubernetes.io/nvidia-gpu"), "unknown", ("no scheduler counts it", "request nvidia.com/gpu")),
    Case("an annotation that alone gives a device", pod_with_metadata(amount=0, annotations={OLARES: "true"}), "unknown", (OLARES, NOT_KNOWN)),
    *(
        Case(f"a node selector with {name}", pod_with_metadata(nodeSelector={name: "true"}), "translated", never="no dialect knows it", configuration=WHOLE_DEVICES_CONFIGURATION)
        for name in ("nvidia.com/gpu", "nvidia.com/gpu-driver-upgrade-drain.skip", "example.com/gpu-pool")
    ),
    *(
        Case(f"a label for a vendor's operator: {name}", pod_with_metadata(labels={name: "true"}), "translated", (name, "it requests nothing"))
        for name in ("nvidia.com/gpu-driver-upgrade-drain.skip", "nvidia.com/ofed-driver-upgrade-drain.skip")
    ),
    Case("a misspelt label in a node selector", pod_with_metadata(nodeSelector={"nvidia.com/gpu.produkt": "A100"}), "translated", "did you mean nvidia.com/gpu.product?", configuration=WHOLE_DEVICES_CONFIGURATION),
    *(Case(name, obj, "unknown", says) for name, (obj, says) in UNCHECKED_OBJECTS.items()),
    *(
        Case(f"no number of devices: {name}: {value}", custom_object("Server", {name: value}), "silent")
        for name, value in (("gpu", True), ("gpuType", "a100"), ("gpus", []), ("vgpu", 0), ("gpuMetrics", 9400), ("tpuTopology", "2x2"), ("input", 1), ("gpus", [1]))
    ),
    Case("a count of zero GPUs", custom_object("Server", {"gpu": {"count": 0}}), "silent"),
    Case("a number of GPUs in an assertion of a Chainsaw test", custom_object("Test", {"steps": [{"try": [{"assert": {"resource": {"spec": {"gpus": 1}}}}]}]}, "chainsaw.kyverno.io/v1alpha1"), "silent"),
    Case("a number of GPUs in an object that a Chainsaw test applies", custom_object("Test", {"steps": [{"try": [{"apply": {"resource": {"spec": {"gpus": 1}}}}]}]}, "chainsaw.kyverno.io/v1alpha1"), "unknown", "gpus: not checked"),
]  # fmt: skip
