"""Kinds of other projects that bring pods: who reads the old keys in their templates, and which scheduler and queue their pods get.

Where a controller reads a key (Ray is told how many GPUs a worker has), the template has to keep it, and the pods are translated when
they come to the webhook. Where nobody does, the template is rewritten like any other. Data about those projects, as they are published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.translate.pod_view import mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json
    from webhook.state import Configuration

QUEUE = "kueue.x-k8s.io/queue-name"


class WorkloadKind(NamedTuple):
    """What is known of a kind that brings pods."""

    reads: str = ""  # who reads the keys in its templates, and what for
    scheduler: str = ""  # what its own `schedulerName` is where it is not said; only for kinds that have one
    group: str = ""  # the annotation by which whoever runs it puts its pods into one group


class Provenance(NamedTuple):
    """What a pod template has from the object that it stands in."""

    queue: str = ""
    scheduler: str = ""
    reads: str = ""


ALONE = Provenance()
_PLAIN = WorkloadKind()
_RAY = WorkloadKind("KubeRay, which tells Ray and its autoscaler by them what a worker has")
_TRAINER = WorkloadKind("Trainer, which counts the processes of a node by them")
_KNATIVE = WorkloadKind("Knative, whose pods have no field for claims")
_KSERVE = WorkloadKind("KServe, which builds its pods itself")
_ARGO = WorkloadKind("Argo, which builds its pods itself")
_AIBRIX = WorkloadKind("AIBrix, which builds its pods itself")
_SPARK = WorkloadKind("the Spark operator, which tells Spark by them what an executor has")

KINDS: Mapping[tuple[str, str], WorkloadKind] = {
    **{("ray.io", kind): _RAY for kind in ("RayCluster", "RayJob", "RayService")},
    ("kubeflow.org", "PyTorchJob"): WorkloadKind("the training operator, which counts processes by them (`nprocPerNode: auto`)"),
    **{("kubeflow.org", kind): _PLAIN for kind in ("TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "Notebook")},
    **{("trainer.kubeflow.org", kind): _TRAINER for kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")},
    **{("serving.knative.dev", kind): _KNATIVE for kind in ("Service", "Configuration", "Revision")},
    **{("serving.kserve.io", kind): _KSERVE for kind in ("InferenceService", "LLMInferenceService", "LLMInferenceServiceConfig", "ServingRuntime", "ClusterServingRuntime")},
    **{("argoproj.io", kind): _ARGO for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")},
    ("argoproj.io", "Rollout"): _PLAIN,
    **{("sparkoperator.k8s.io", kind): _SPARK for kind in ("SparkApplication", "ScheduledSparkApplication")},
    ("jobset.x-k8s.io", "JobSet"): _PLAIN,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _PLAIN,
    ("workload.codeflare.dev", "AppWrapper"): _PLAIN,
    ("batch.volcano.sh", "Job"): WorkloadKind(scheduler="volcano", group="scheduling.k8s.io/group-name"),
    ("apps.kruise.io", "CloneSet"): _PLAIN,
    ("production-stack.vllm.ai", "VLLMRuntime"): WorkloadKind("vLLM's production stack, which builds its pods itself"),
    ("nvidia.com", "DynamoGraphDeployment"): WorkloadKind("Dynamo, which builds its pods itself"),
    ("nvidia.com", "DynamoComponentDeployment"): WorkloadKind("Dynamo, which builds its pods itself"),
    **{("apps.nvidia.com", kind): WorkloadKind("the NIM operator, which builds its pods itself") for kind in ("NIMService", "NIMCache")},
    **{("orchestration.aibrix.ai", kind): _RAY for kind in ("RayClusterFleet", "RayClusterReplicaSet")},
    **{("orchestration.aibrix.ai", kind): _AIBRIX for kind in ("StormService", "RoleSet", "PodSet")},
    ("kaito.sh", "Workspace"): WorkloadKind("KAITO, which builds its pods itself"),
    ("kubeflow.org", "Experiment"): WorkloadKind("Katib, which makes a workload of it for each trial"),
    ("sagemaker.amazonaws.com", "HyperPodPyTorchJob"): WorkloadKind("HyperPod, which counts processes by them"),
}  # fmt: skip


# Kinds whose pods Kueue counts one by one, by the label on each; of all others it counts the templates.
_BY_POD = frozenset(
    (
        ("", "Pod"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    )
)


def kind_of(obj: Mapping[str, Json]) -> WorkloadKind | None:
    """Find what is known of an object's kind, if it is one of another project that brings pods."""
    return KINDS.get(group_kind(obj))


def scheduler_of(obj: Mapping[str, Json]) -> str:
    """Say which scheduler whoever runs an object writes into its pods; "" where that is left to their template."""
    kind = kind_of(obj)
    if kind is None or not kind.scheduler:
        return ""
    own = mapping(obj.get("spec")).get("schedulerName")
    return str(own or kind.scheduler)


def origin_of(obj: Mapping[str, Json], configuration: Configuration) -> Provenance:
    """Say what pods have from the object whose templates they are made of.

    What Kueue counts by the template it goes on counting while the template stays; its pods may well get claims.
    """
    kind = kind_of(obj) or _PLAIN
    scheduler = scheduler_of(obj)
    metadata = mapping(obj.get("metadata"))
    labels = mapping(metadata.get("labels"))
    queue = str(labels.get(QUEUE) or "")
    counts_claims = bool(configuration.file.kueue.device_classes)
    if not queue or counts_claims or group_kind(obj) in _BY_POD:
        return Provenance(queue, scheduler, kind.reads)
    kueue = f"Kueue, which counts them in queue {queue} (it counts claims of classes under `kueue.deviceClasses`)"
    return Provenance("", scheduler, kind.reads or kueue)


def group_kind(obj: Mapping[str, Json]) -> tuple[str, str]:
    """The group and the kind of an object: what is known of a kind is known of all its versions."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return group, str(obj.get("kind", ""))
