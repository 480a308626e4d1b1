"""Workloads, fleets and configurations for the tests that compare the answers of the commands."""

from tests.corpus.move import GPU, migrated_fleet, node
from tests.objects import obj
from webhook.names import MODE_LABEL

EMPTY_CONFIGURATION = obj("DrawbridgeConfiguration", "c", "drawbridge.dev/v1alpha1")
WHOLE_GPU_CONFIGURATION = EMPTY_CONFIGURATION | {"meanings": {GPU: "whole"}}
FPGA = "example.com/fpga"
# Impossible pods get a warning and are not refused.
WARNING_CONFIGURATION = EMPTY_CONFIGURATION | {"impossible": "warn"}
# GPU requests that a DeviceClass serves are translated, too.
TRANSLATING_CONFIGURATION = EMPTY_CONFIGURATION | {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}
# The devices of NVIDIA's driver have a taint that only the bridge tolerates.
FENCED_CONFIGURATION = EMPTY_CONFIGURATION | {
    "bridge": {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"], "fence": True}
}
REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_IN_POOL_X = {
    REQUIRED_AFFINITY: {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["x"]}]}]
    }
}


def job_spec(template):
    return {"template": template | {"spec": {"restartPolicy": "Never"} | template["spec"]}}


# By apiVersion and kind: a function that returns the spec of an object with this pod template.
WORKLOAD_KINDS = {
    ("v1", "Pod"): lambda template: template["spec"],
    ("apps/v1", "Deployment"): lambda template: {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    ("batch/v1", "Job"): job_spec,
    ("batch/v1", "CronJob"): lambda template: {"schedule": "0 0 * * *", "jobTemplate": {"spec": job_spec(template)}},
    ("ray.io/v1", "RayCluster"): lambda template: {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}},
        "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "rayStartParams": {}, "template": template}],
    },
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): lambda template: {
        "replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": job_spec(template)}}]
    },
    ("kubeflow.org/v1", "Notebook"): lambda template: {"template": template},
    ("batch.volcano.sh/v1alpha1", "Job"): lambda template: {"tasks": [{"replicas": 1, "template": template}]},
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): lambda template: {
        "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template, "workerTemplate": template}
    },
    ("kubeflow.org/v1", "PyTorchJob"): lambda template: {
        "pytorchReplicaSpecs": {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    },
    ("example.com/v1", "Training"): lambda template: {"template": template},
}


def object_of_kind(version, kind, template, **metadata):
    """Return an object whose pods have this template."""
    pod_metadata = template["metadata"] if kind == "Pod" else {}
    metadata = {"name": "w", "namespace": "n"} | pod_metadata | metadata
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": WORKLOAD_KINDS[version, kind](template)}


def reporting_only_cpu(*objects):
    """Return the objects, in which each Node reports CPU and no devices."""
    return [obj | {"status": {"allocatable": {"cpu": "8"}}} if obj.get("kind") == "Node" else obj for obj in objects]


FLEET = reporting_only_cpu(*migrated_fleet("a", "b"))


def namespace(mode):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {MODE_LABEL: mode}}}


def pod_template(container_resources, **spec):
    return {
        "metadata": {},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": container_resources}]} | spec,
    }


def limits(**amounts):
    """Return limits for the keys of a GPU (`gpu`) and an FPGA (`fpga`)."""
    return {"limits": {GPU if key == "gpu" else FPGA: amount for key, amount in amounts.items()}}


POD, JOB, RAY_CLUSTER, JOBSET, TRAINING = (
    next((version, kind) for version, kind in WORKLOAD_KINDS if kind == name)
    for name in ("Pod", "Job", "RayCluster", "JobSet", "Training")
)
ONE_GPU, GPU_AND_FPGA = pod_template(limits(gpu="1")), pod_template(limits(gpu="1", fpga="1"))
FLEET_WITHOUT_GPUS, FLEET_WITH_DRIVER, FLEET_THAT_SERVES_GPUS = (
    reporting_only_cpu(node("a")),
    reporting_only_cpu(*migrated_fleet("a")),
    reporting_only_cpu(*migrated_fleet("a", extended=GPU)),
)
POD_LEVEL_GPU, GPU_PLACEHOLDER = pod_template({}, resources=limits(gpu="1")), pod_template(limits(gpu="${GPUS}"))
