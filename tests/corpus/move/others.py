"""Keys that another program reads, and keys of devices that no dialect knows, from public repositories."""

from typing import Any

from tests.corpus.move import GPU, Case, asking, moved
from tests.webhook.pods import pod

ASCEND, I915, AMD = "huawei.com/Ascend310P", "gpu.intel.com/i915", "amd.com/gpu"
WHOLE = {"meanings": {GPU: "whole", I915: "whole", AMD: "whole"}}
OLARES, KAIWO = "applications.app.bytetrade.io/gpu-inject", "kaiwo.silogen.ai/gpu-preemption.enabled"
NOT_KNOWN = "no dialect knows it"


def a_pod(*limits, **more):
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, **more)}


def marked(key=GPU, amount=1, *, labels=(), annotations=(), **spec):
    given = asking(amount, key=key, **spec)
    given["metadata"] |= {"labels": dict(labels), "annotations": dict(annotations)}
    return given


def workload(template, **metadata):
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", **metadata}, "spec": spec}


def reading_annotation(name, key=ASCEND):
    given = asking(1, key=key)
    field = {"fieldPath": f"metadata.annotations['{name}']"}
    given["spec"]["containers"][0]["env"] = [{"name": "ASCEND_VISIBLE_DEVICES", "valueFrom": {"fieldRef": field}}]
    return given


def seeing(name, value="all", *, key):
    given = asking(1, key=key)
    given["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return given


def mounting(path):
    return asking(1, volumes=[{"name": "v", "hostPath": {"path": path}}])


def custom(kind, spec, group="example.org/v1", **metadata):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "o", **metadata}, "spec": spec}


TIME_SLICED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
PATCH = {
    "plaintext": [
        {
            "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu",
            "operator": "replace",
            "value": "2",
        }
    ]
}
RELEASE = {"devicePlugin": {"config": {"data": {"default": TIME_SLICED}}}}
UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "a count under gpu": (custom("Server", {"resources": {"gpu": {"type": "nvidia-l4", "count": 4}}}), "gpu: not checked"),
    "a count under hardware.gpu": (custom("Model", {"hardware": {"gpu": {"enabled": True, "count": 1}}}), "gpu: not checked"),
    "a value under gpu": (custom("TrainingWorkload", {"gpu": {"value": "0.5"}}), "gpu: not checked"),
    **{
        f"an amount under {name}": (custom("Server", {"worker": {name: amount}}), f"{name}: not checked")
        for name, amount in (
            ("vgpu", 1), ("hpu", 8), ("mlu", 2), ("fpgas", 1), ("neuronCores", "8"), ("gpusPerWorker", 4), ("workerGPUs", 4), ("nvidiaGpus", 1),
            ("GPU_COUNT", 4), ("gpuFraction", 0.5), ("gpuMemory", "20Gi"), ("gpus", [{"model": "a", "count": 1}]), ("gpuResources", {"quantity": 1}),
        )
    },
    "memory of a GPU": (custom("Job", {"gpuMemory": {"value": "5Gi"}}), "gpuMemory: not checked"),
    "an identifier": (custom("HardwareProfile", {"identifiers": [{"identifier": GPU, "minCount": 1}]}), GPU),
    "a resourceName of another prefix": (custom("SpiderMultusConfig", {"macvlan": {"rdmaResourceName": "spidernet.io/mellanoxrdma"}}), "spidernet.io/mellanoxrdma"),
    "a pool of virtual functions": (custom("SpiderMultusConfig", {"sriov": {"resourceName": "spidernet.io/sriov_netdevice"}}), "spidernet.io/sriov_netdevice"),
    "a path to a key": (custom("OverridePolicy", {"overrideRules": [{"overriders": PATCH}]}, "policy.karmada.io/v1alpha1"), (GPU, "Karmada writes it")),
    "time slicing in values": (custom("HelmRelease", {"values": RELEASE}, "helm.toolkit.fluxcd.io/v2"), (GPU, "helm template")),
    "time slicing in values as a text": (
        custom("Application", {"source": {"helm": {"values": f"a: |\n{TIME_SLICED}"}}}, "argoproj.io/v1alpha1"),
        (GPU, "helm template"),
    ),
    "an annotation that recommends a key": (custom("ServingRuntime", {}, "serving.kserve.io/v1alpha1", annotations={"opendatahub.io/recommended-accelerators": '["nvidia.com/gpu"]'}), "recommended-accelerators"),
}  # fmt: skip
CASES = [
    # Another program reads the key.
    Case("a variable that is filled from the annotation of the key", reading_annotation(ASCEND), "left", ("variable ASCEND_VISIBLE_DEVICES", "annotation")),
    Case("a variable that is filled from another annotation", reading_annotation("example.com/note"), "translated"),
    Case("a variable by which Habana's runtime gives every card", seeing("HABANA_VISIBLE_DEVICES", key="habana.ai/gaudi"), "left", "Habana's runtime"),
    Case("a variable by which Habana's runtime gives none", seeing("HABANA_VISIBLE_DEVICES", "void", key="habana.ai/gaudi"), "translated"),
    Case("a device plugin of its own", mounting("/var/lib/kubelet/device-plugins"), "left", "is a device plugin itself", moved("a")),
    Case("another folder of the node", mounting("/var/lib/other"), "translated", around=moved("a")),
    *(
        Case(f"GPU Aware Scheduling: {name}", marked(I915, annotations={name: "card0"}), "left", name, configuration=WHOLE)
        for name in ("gas-allow", "gas-deny", "gas-same-gpu", "gas-allocate-xelink", "gas-allocate-single-numa", "gas-container-cards")
    ),
    Case("kaiwo preempts by the key", marked(AMD, annotations={KAIWO: "true"}), "left", "kaiwo", configuration=WHOLE),
    Case("kaiwo does not read NVIDIA's key", marked(annotations={KAIWO: "true"}), "translated", around=moved("a")),
    Case("kaiwo preempts a workload", workload(asking(1, key=AMD), annotations={KAIWO: "true"}), "left", "kaiwo", configuration=WHOLE),
    Case("Olares puts the key into a template again", workload(asking(1), annotations={OLARES: "true"}), "left", "Olares", moved("a")),
    Case("Koordinator's request of an MLU beside its own keys", a_pod({"cambricon.com/mlu": 1, "koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 100}, scheduler="koord-scheduler"), "left", "cambricon.com/mlu"),
    Case("Koordinator's request of an NPU beside its own keys", a_pod({ASCEND: 1, "koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 100}, scheduler="koord-scheduler"), "left", "Koordinator"),
    Case("KAI's annotation on a pod of another scheduler", marked(amount=0, annotations={"gpu-fraction": "0.5"}), "left", ("gpu-fraction", "does not name the scheduler"), configuration={"kai": {"fractions": "translate"}}),
    Case("an accelerator for radio is no pool of NICs", asking(1, key="intel.com/intel_fec_acc100"), "left", "FEC accelerator", never="nics"),
    # Keys that no dialect knows.
    Case("a label of an unknown system", marked(amount=0, labels={"sharedgpu/gpu_request": "0.5"}, schedulerName="kubeshare-scheduler"), "unknown", ("sharedgpu/gpu_request", NOT_KNOWN)),
    Case("a word without a domain, and an unknown scheduler", marked(amount=0, annotations={"gpu-share": "1"}, schedulerName="my-scheduler"), "unknown", ("gpu-share", NOT_KNOWN)),
    Case("a word without a domain on a pod that is rewritten", marked(annotations={"gpu-share": "1"}), "translated", ("gpu-share", NOT_KNOWN), moved("a")),
    Case("a word without a domain on any other pod", marked(amount=0, labels={"gpu-share": "1"}), "silent"),
    Case("a word without a domain, for the default scheduler", marked(amount=0, labels={"gpu-share": "1"}, schedulerName="default-scheduler"), "silent"),
    Case("an annotation that alone gives a device", marked(amount=0, annotations={OLARES: "true"}), "unknown", (OLARES, NOT_KNOWN)),
    *(
        Case(f"a selector of nodes: {name}", marked(nodeSelector={name: "true"}), "translated", never="no dialect knows it", configuration=WHOLE)
        for name in ("nvidia.com/gpu", "nvidia.com/gpu-driver-upgrade-drain.skip", "example.com/gpu-pool")
    ),
    *(
        Case(f"a label for an operator of a vendor: {name}", marked(labels={name: "true"}), "translated", (name, "it requests nothing"))
        for name in ("nvidia.com/gpu-driver-upgrade-drain.skip", "nvidia.com/ofed-driver-upgrade-drain.skip")
    ),
    Case("a misspelt selector of nodes", marked(nodeSelector={"nvidia.com/gpu.produkt": "A100"}), "translated", "did you mean nvidia.com/gpu.product?", configuration=WHOLE),
    *(Case(name, given, "unknown", says) for name, (given, says) in UNKNOWN.items()),
    *(
        Case(f"what is no amount: {name}: {value}", custom("Server", {name: value}), "silent")
        for name, value in (("gpu", True), ("gpuType", "a100"), ("gpus", []), ("vgpu", 0), ("gpuMetrics", 9400), ("tpuTopology", "2x2"), ("input", 1), ("gpus", [1]))
    ),
    Case("a count of none", custom("Server", {"gpu": {"count": 0}}), "silent"),
    Case("what a test asserts", custom("Test", {"steps": [{"try": [{"assert": {"resource": {"spec": {"gpus": 1}}}}]}]}, "chainsaw.kyverno.io/v1alpha1"), "silent"),
    Case("what a test applies", custom("Test", {"steps": [{"try": [{"apply": {"resource": {"spec": {"gpus": 1}}}}]}]}, "chainsaw.kyverno.io/v1alpha1"), "unknown", "gpus: not checked"),
]  # fmt: skip
