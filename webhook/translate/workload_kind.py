"""Workload kinds of other projects: which controller reads the keys in their pod templates, and which scheduler and queue their pods get.

If a controller reads a key (KubeRay passes the number of GPUs to Ray), the template keeps the key, and the webhook translates the pods. All
other templates are translated. The table states what the projects have published.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dra.raw import mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json
    from webhook.state import Configuration

QUEUE = "kueue.x-k8s.io/queue-name"


class Keeps(StrEnum):
    """What a published CRD does with `resourceClaims` of a pod template, and with `claims` of a container."""

    YES = "keeps claims"
    NO = "drops claims"
    ANY = "keeps any field"
    NO_TEMPLATE = "has no pod template"
    UNPUBLISHED = "is not published"


class Published(NamedTuple):
    """The project and version whose definition of a kind was read, its files, and the first version that keeps claims."""

    version: str
    source: str
    keeps: Keeps
    since: str = ""


class WorkloadKind(NamedTuple):
    published: Published
    reads: str = ""  # the controller that reads the keys in its templates, and for what
    scheduler: str = ""  # the default of the kind's own `schedulerName`, if the kind has this field
    group: str = ""  # the annotation by which its operator puts its pods into one group
    drops: tuple[str, ...] = ()  # its versions whose CRD drops claims, at least in releases that are in use
    note: str = ""  # a further remark for the page
    gpu: str = ""  # the resource that the kind's own `gpu`, among limits and requests, becomes in its pods
    profile: str = ""  # the field with the name of a profile, which has the devices of its pods
    former: tuple[str, str] = ("", "")  # the apiVersion that another controller served before, and its `reads`

    def reads_of(self, obj: Mapping[str, Json]) -> str:
        """Return which controller reads the keys in this object of the kind, and for what."""
        former_version, former_reads = self.former
        return former_reads if obj.get("apiVersion") == former_version else self.reads


class Provenance(NamedTuple):
    """What the pods of a template get from the workload around it."""

    queue: str = ""
    scheduler: str = ""
    stays: str = ""  # why the template stays as it is
    labels: frozenset[str] = frozenset()  # labels of READ_BY_OTHERS that the controller sets on its pods
    drops: str = ""  # why claims in the template are lost, according to KINDS


STANDALONE = Provenance()
LWS_LABEL = "leaderworkerset.sigs.k8s.io/name"
VM_LABEL = "kubevirt.io/created-by"
ANY_KEY = ""
# By a label or annotation: the prefix of the keys that another program reads after this webhook, and the reason.
READ_BY_OTHERS: Mapping[str, tuple[str, str]] = {
    LWS_LABEL: ("google.com/tpu", "LeaderWorkerSet reads it on each pod to set TPU_WORKER_ID and TPU_WORKER_HOSTNAMES"),
    VM_LABEL: (
        ANY_KEY,
        "KubeVirt finds a VM's devices by variables that device plugins set, such as PCI_RESOURCE_NVIDIA_COM_GPU",
    ),
    **dict.fromkeys(
        [
            f"kaiwo.silogen.ai/gpu-preemption.{setting}"
            for setting in ("enabled", "threshold", "grace-period", "policy", "aggregation", "ttl")
        ],
        ("amd.com/", "kaiwo finds the pods that it may preempt by the key"),
    ),
    "applications.app.bytetrade.io/gpu-inject": (
        ANY_KEY,
        "Olares puts the key into the template again",
    ),
}


def _read(project: str, source: str, keeps: Keeps, reads: str, *, since: str = "", note: str = "") -> WorkloadKind:
    return WorkloadKind(Published(project, source, keeps, since), reads, note=note)


def _plain(project: str, source: str, since: str = "", keeps: Keeps = Keeps.YES) -> WorkloadKind:
    return WorkloadKind(Published(project, source, keeps, since))


_OPERATOR = Published("training operator 1.9.2", "manifests/base/crds", Keeps.YES, "training operator 1.9")
_RAY = _read(
    "KubeRay 1.7.0-rc.0",
    "ray-operator/config/crd/bases, ray-operator/controllers/ray/utils/resources.go",
    Keeps.YES,
    "KubeRay, which sizes Ray's workers and its autoscaler by them",
    since="1.3.2",
)
_TRAINER = _read(
    "Trainer main of 2026-08", "manifests/base/crds", Keeps.YES, "Trainer, which counts the processes of a node by them"
)
_KNATIVE = _read(
    "Knative Serving 1.23.0",
    "config/core/300-resources",
    Keeps.NO,
    "Knative, whose pods have no field for claims",
)
_KSERVE = _read(
    "KServe 0.20.0-rc1",
    "config/crd/full, pkg/constants/constants.go",
    Keeps.YES,
    "KServe, which builds its pods itself",
    note="it counts GPUs of several nodes by the keys; the minimal definitions keep any field",
)
_ARGO = _read(
    "Argo Workflows 4.1.0-rc2",
    "manifests/base/crds/full",
    Keeps.NO_TEMPLATE,
    "Argo, which builds its pods itself",
    note="a container has `claims`, a workflow no `resourceClaims`",
)
_AIBRIX = _read("AIBrix main of 2026-08", "config/crd/orchestration", Keeps.YES, "AIBrix, which builds its pods itself")
_SPARK = _read(
    "Spark operator main of 2026-08",
    "config/crd/bases",
    Keeps.ANY,
    "the Spark operator, which tells Spark by them what an executor has",
)
_DYNAMO = _read(
    "Dynamo main of 2026-08",
    "deploy/operator/api/v1beta1",
    Keeps.YES,
    "Dynamo, which builds its pods itself",
    note="it turns its own `gpu` into nvidia.com/gpu; its `gpuMemoryService` creates claims itself",
)._replace(gpu="nvidia.com/gpu")
_NIM = _read(
    "NIM operator main of 2026-08",
    "api/apps/v1alpha1/nimservice_types.go",
    Keeps.NO_TEMPLATE,
    "the NIM operator, which builds its pods itself",
    note="it ignores `claims` in `resources`: its own `spec.draResources` is for them",
)
_KAITO = _read(
    "KAITO 0.12.0",
    "config/crd/bases, pkg/workspace/resource/node.go",
    Keeps.ANY,
    "KAITO, which builds its pods itself",
    note="it waits until a node's capacity has nvidia.com/gpu: keep the device plugin on its nodes",
)._replace(profile="instanceType")
_SELDON = _read(
    "Seldon Core v2 of 2026-01",
    "k8s/helm-charts/seldon-core-v2-crds, operator/controllers/reconcilers/server",
    Keeps.NO,
    "Seldon, which puts it into the pods of a ServerConfig",
    note="a Server has no `resourceClaims`, a ServerConfig keeps them",
)
_OME = _read(
    "OME main of 2026-05",
    "config/crd/full, pkg/controller/v1beta1/inferenceservice",
    Keeps.YES,
    "OME, which builds its pods itself",
    note="it counts the processes of several nodes by nvidia.com/gpu; for TensorRT-LLM its webhook reads the key on the pod, too",
)
_LLMAZ = _read(
    "llmaz main of 2025-10",
    "config/crd/bases, pkg/controller/inference",
    Keeps.NO_TEMPLATE,
    "llmaz, which builds its pods itself",
)
_GROVE = _read(
    "Grove main of 2026-08",
    "operator/api/core/v1alpha1/crds, operator/internal/mnnvl/helpers.go",
    Keeps.YES,
    "Grove, which finds by them the pods that need a ComputeDomain",
)
_KUBEVIRT = _read(
    "KubeVirt main of 2026-08",
    "staging/src/kubevirt.io/api/core/v1/schema.go, pkg/virt-launcher/virtwrap/device/hostdevice",
    Keeps.NO_TEMPLATE,
    "KubeVirt, which builds its pods itself",
    note="its pods keep the keys, too; `claimName` in place of `deviceName` takes a claim",
)
_RBG = _read(
    "RoleBasedGroup main of 2026-08",
    "config/crd/bases, pkg/reconciler/pod_reconciler.go",
    Keeps.YES,
    "RoleBasedGroup, which merges patches into its templates",
    note="a patch with tolerations would replace those of the template",
)
_RUNAI = _read("run:ai", "no public definition", Keeps.UNPUBLISHED, "run:ai, which builds its pods itself")
_SLINKY = _read(
    "Slinky slurm-operator 1.1.0-rc1",
    "config/crd/bases, internal/builder/workerbuilder",
    Keeps.ANY,
    "the Slurm operator, which puts its container into the pod",
    note="it reads processors and memory of the container, no devices",
)
_SOPERATOR = _read("Soperator 4.1.7", "config/crd/bases", Keeps.NO_TEMPLATE, "Soperator, which builds its pods itself")
_APP_WRAPPER = _read(
    "AppWrapper 1.2.1",
    "config/crd/bases, internal/controller/appwrapper",
    Keeps.ANY,
    "AppWrapper, which keeps its pods off nodes with failed devices by them",
    note="Autopilot restarts no translated pod on a node that fails later: it looks for the key",
)._replace(
    # project-codeflare/multi-cluster-app-dispatcher d47de4a43, pkg/controller/queuejobresources/genericresource/genericresource.go
    former=("workload.codeflare.dev/v1beta1", "MCAD, which counts the GPUs of an AppWrapper by them")
)
_VOLCANO = Published("Volcano 1.16.0-alpha.1", "config/crd/volcano/bases, config/crd/jobflow/bases", Keeps.YES, "1.11")

KINDS: Mapping[tuple[str, str], WorkloadKind] = {
    **{("ray.io", kind): _RAY for kind in ("RayCluster", "RayJob", "RayService", "RayCronJob")},
    ("kubeflow.org", "PyTorchJob"): WorkloadKind(_OPERATOR, "the training operator, which counts processes by them (`nprocPerNode: auto`)"),
    **{("kubeflow.org", kind): WorkloadKind(_OPERATOR, drops=("v1",)) for kind in ("TFJob", "XGBoostJob", "PaddleJob")},
    ("kubeflow.org", "JAXJob"): WorkloadKind(_OPERATOR),
    ("kubeflow.org", "MPIJob"): WorkloadKind(Published("MPI operator 0.8.0", "manifests/base/kubeflow.org_mpijobs.yaml", Keeps.YES, "v2beta1 of MPI operator 0.6"), drops=("v1",)),
    ("kubeflow.org", "Notebook"): WorkloadKind(Published("Kubeflow Notebooks 1.11", "components/notebook-controller/config/crd/bases", Keeps.NO), drops=("v1", "v1beta1", "v1alpha1")),
    **{("trainer.kubeflow.org", kind): _TRAINER for kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")},
    **{("serving.knative.dev", kind): _KNATIVE for kind in ("Service", "Configuration", "Revision")},
    **{("serving.kserve.io", kind): _KSERVE for kind in ("InferenceService", "LLMInferenceService", "LLMInferenceServiceConfig", "ServingRuntime", "ClusterServingRuntime")},
    **{("argoproj.io", kind): _ARGO for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")},
    ("argoproj.io", "Rollout"): _plain("Argo Rollouts 1.10.0-rc1", "manifests/crds/rollout-crd.yaml", "1.9"),
    **{("sparkoperator.k8s.io", kind): _SPARK for kind in ("SparkApplication", "ScheduledSparkApplication", "SparkConnect")},
    ("jobset.x-k8s.io", "JobSet"): _plain("JobSet 0.12.0", "config/components/crd/bases", "0.7"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _plain("LeaderWorkerSet 0.10.0", "config/crd/bases, pkg/utils/accelerators/tpu.go", "0.4")._replace(note="TPUs stay, also on pods: LeaderWorkerSet's webhook reads google.com/tpu there"),
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): _plain("LeaderWorkerSet 0.10.0", "config/crd/bases")._replace(note="TPUs stay, as in a LeaderWorkerSet"),
    ("workload.codeflare.dev", "AppWrapper"): _APP_WRAPPER,
    ("batch.volcano.sh", "Job"): WorkloadKind(_VOLCANO, scheduler="volcano", group="scheduling.k8s.io/group-name"),
    ("flow.volcano.sh", "JobTemplate"): WorkloadKind(_VOLCANO, scheduler="volcano", group="scheduling.k8s.io/group-name"),
    ("workload.serving.volcano.sh", "ModelServing"): WorkloadKind(Published("Kthena 1.0.0-rc.0", "charts/kthena/charts/workload/crds", Keeps.YES, "0.1"), scheduler="volcano", group="scheduling.k8s.io/group-name"),
    ("apps.kruise.io", "CloneSet"): _plain("OpenKruise main of 2026-07", "config/crd/bases", keeps=Keeps.ANY),
    ("production-stack.vllm.ai", "VLLMRuntime"): _read("vLLM production stack 0.1.12", "operator/config/crd/bases", Keeps.NO_TEMPLATE, "vLLM's production stack, which builds its pods itself"),
    **{("nvidia.com", kind): _DYNAMO for kind in ("DynamoGraphDeployment", "DynamoComponentDeployment")},
    **{("apps.nvidia.com", kind): _NIM for kind in ("NIMService", "NIMCache", "NIMPipeline")},
    **{("orchestration.aibrix.ai", kind): _RAY for kind in ("RayClusterFleet", "RayClusterReplicaSet")},
    **{("orchestration.aibrix.ai", kind): _AIBRIX for kind in ("StormService", "RoleSet", "PodSet", "KVCache")},
    **{("kaito.sh", kind): _KAITO for kind in ("Workspace", "InferenceSet", "MultiRoleInference", "RAGEngine")},
    ("kubeai.org", "Model"): _read("KubeAI 0.21.0", "manifests/crds/kubeai.org_models.yaml, internal/config/system.go", Keeps.NO_TEMPLATE, "KubeAI, which takes the devices of its pods from a profile", note="the key is in `resourceProfiles` of its configuration")._replace(profile="resourceProfile"),
    **{("mlops.seldon.io", kind): _SELDON for kind in ("Server", "ServerConfig")},
    ("serving.yatai.ai", "BentoDeployment"): _read("yatai-deployment 1.1.21", "config/crd/bases, controllers/bentodeployment_controller.go", Keeps.NO_TEMPLATE, "Yatai, which builds its pods itself", note="its own `gpu` becomes nvidia.com/gpu, and `custom` is copied")._replace(gpu="nvidia.com/gpu"),
    **{("ome.io", kind): _OME for kind in ("InferenceService", "ServingRuntime", "ClusterServingRuntime", "BenchmarkJob")},
    ("llmaz.io", "OpenModel"): _LLMAZ,
    **{("inference.llmaz.io", kind): _LLMAZ for kind in ("Service", "Playground", "BackendRuntime")},
    **{("grove.io", kind): _GROVE for kind in ("PodCliqueSet", "PodClique")},
    **{("workloads.x-k8s.io", kind): _RBG for kind in ("RoleBasedGroup", "RoleBasedGroupSet")},
    **{("kubevirt.io", kind): _KUBEVIRT for kind in ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet")},
    **{("instancetype.kubevirt.io", kind): _KUBEVIRT for kind in ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")},
    ("pool.kubevirt.io", "VirtualMachinePool"): _KUBEVIRT,
    **{("run.ai", kind): _RUNAI for kind in ("RunaiJob", "TrainingWorkload", "InteractiveWorkload", "InferenceWorkload", "DistributedWorkload")},
    **{("slinky.slurm.net", kind): _SLINKY for kind in ("NodeSet", "LoginSet")},
    **{("slurm.nebius.ai", kind): _SOPERATOR for kind in ("NodeSet", "SlurmCluster")},
    ("kubeflow.org", "Experiment"): _read("Katib main of 2026-08", "manifests/v1beta1/components/crd/experiment.yaml", Keeps.ANY, "Katib, which creates a workload from it for each trial"),
    ("sagemaker.amazonaws.com", "HyperPodPyTorchJob"): _read("HyperPod", "no public definition", Keeps.UNPUBLISHED, "HyperPod, which counts processes by them"),
}  # fmt: skip
# Kinds with values for templates that are rendered elsewhere. Limits and requests in values of charts are decided like those of a pod, other
# keys are reported.
RENDERED: Mapping[tuple[str, str], WorkloadKind] = {
    **{("argoproj.io", kind): _read("Argo CD main of 2026-08", "manifests/crds", Keeps.NO_TEMPLATE, "Argo CD, which renders a chart with it") for kind in ("Application", "ApplicationSet")},
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _read("Flux helm-controller 1.6.0", "config/crd/bases", Keeps.ANY, "Flux, which renders a chart with it"),
    **{("policy.karmada.io", kind): _read("Karmada 1.19.0-rc.0", "charts/karmada/_crds/bases/policy", Keeps.ANY, "Karmada, which writes it over objects of its member clusters") for kind in ("OverridePolicy", "ClusterOverridePolicy")},
}  # fmt: skip


# Kinds whose pods Kueue counts one by one, by the label on each pod; for other kinds it counts the templates.
_BY_POD = frozenset(
    (
        ("", "Pod"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    )
)


_FOLDED = {(group, kind.casefold()): kind for group, kind in KINDS}


def kind_of(obj: Mapping[str, Json]) -> WorkloadKind | None:
    return KINDS.get(group_kind(obj))


def right_kind(obj: Mapping[str, Json]) -> str:
    """Return the kind with the right capital letters if an object misspells one of KINDS; "" otherwise."""
    group, kind = group_kind(obj)
    known = _FOLDED.get((group, kind.casefold()), "")
    return "" if known == kind else known


def scheduler_of(obj: Mapping[str, Json]) -> str:
    """Return the scheduler that an operator sets on the pods of an object; "" if their template decides."""
    kind = kind_of(obj)
    if kind is None or not kind.scheduler:
        return ""
    own_scheduler = mapping(obj.get("spec")).get("schedulerName")
    return str(own_scheduler or kind.scheduler)


def marks_of(obj: Mapping[str, Json]) -> frozenset[str]:
    """Return the labels of READ_BY_OTHERS that a controller sets on the pods of a template."""
    return frozenset((LWS_LABEL,)) if group_kind(obj)[1] in ("LeaderWorkerSet", "DisaggregatedSet") else frozenset()


def labels_of_pods(obj: Mapping[str, Json]) -> dict[str, Json]:
    """Return the labels that an object's controller and Kueue add to its pods."""
    metadata = mapping(obj.get("metadata"))
    labels = dict.fromkeys(marks_of(obj), metadata.get("name"))
    queue = mapping(metadata.get("labels")).get(QUEUE)
    return {**labels, QUEUE: queue} if queue and group_kind(obj) in _BY_POD else labels


def origin_of(obj: Mapping[str, Json], configuration: Configuration, *, is_defined: bool = False) -> Provenance:
    """Return what the pods of an object's templates get from the object; `is_defined` if the CRD of its kind is known.

    If Kueue counts the keys in the templates, the templates stay, and the webhook translates the pods.
    """
    kind = kind_of(obj)
    scheduler = scheduler_of(obj)
    metadata = mapping(obj.get("metadata"))
    labels = mapping(metadata.get("labels"))
    queue = str(labels.get(QUEUE) or "")
    counts_claims = bool(configuration.file.kueue.device_classes)
    marks = marks_of(obj)
    drops = ""
    if kind and not is_defined and str(obj.get("apiVersion", "")).rpartition("/")[2] in kind.drops:
        since = f"before {kind.published.since}" if kind.published.since else f"({kind.published.version})"
        drops = f"its CRD drops claims {since}; if the inventory has the CRD, the schema of the CRD decides"
    stays = f"the keys in it are read by {kind.reads_of(obj)}" if kind and kind.reads else drops
    for name in mapping(metadata.get("annotations")) if obj.get("kind") != "Pod" else ():
        if name in READ_BY_OTHERS:
            stays = stays or f"by annotation {name}, {READ_BY_OTHERS[name][1]}"
    if not queue or counts_claims or group_kind(obj) in _BY_POD:
        return Provenance(queue, scheduler, stays, marks, drops)
    kueue_reason = f"the keys in it are read by Kueue, which counts them in queue {queue} (it counts claims of classes under `kueue.deviceClasses`)"
    return Provenance("", scheduler, stays or kueue_reason, marks, drops)


def group_kind(obj: Mapping[str, Json]) -> tuple[str, str]:
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return group, str(obj.get("kind", ""))
