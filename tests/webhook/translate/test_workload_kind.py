"""Pod templates in workload kinds of other projects are rewritten unless a controller reads their keys."""

import copy

import pytest

from tests.loops import every
from tests.webhook.definitions import (
    ANY,
    BEFORE_131,
    DROPS_CLAIMS,
    KEEPS_CLAIMS,
    definition,
    object_with,
    pod_spec,
    template,
)
from tests.webhook.pods import (
    GPU_MODELS,
    HAMI,
    SIGNING_KEY,
    UNKNOWN,
    WHOLE_GPUS,
    configured,
    exactly,
    outcomes,
    patched,
    pod,
    untouched,
    verdict_of,
)
from webhook.admission import decide_object
from webhook.state import custom_kinds
from webhook.state.state import State
from webhook.translate import paths
from webhook.translate.workload_kind import KINDS, LWS_LABEL, QUEUE, Keeps

TEMPLATE = {"spec": pod({"nvidia.com/gpu": 1})["spec"]}
QUEUE_LABELS = {QUEUE: "team"}
CLASSES_IN_KUEUE = {"kueue": {"deviceClasses": ["gpu.nvidia.com", HAMI]}}


def workload(version: str, kind: str, spec: dict, labels: dict | None = None) -> dict:
    metadata = {"name": "w", "namespace": "n", "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def verdict_with_fields(obj: dict, **fields):
    state = State(configuration=configured(**{**WHOLE_GPUS, **fields}), fleet=UNKNOWN, keys=(SIGNING_KEY,))
    return decide_object(obj, state)


RAY = workload("ray.io/v1", "RayCluster", {"workerGroupSpecs": [{"groupName": "g", "template": TEMPLATE}]})
KNATIVE = workload("serving.knative.dev/v1", "Service", {"template": TEMPLATE})
RUNTIME = workload(
    "trainer.kubeflow.org/v1alpha1",
    "ClusterTrainingRuntime",
    {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}]}}},
)
PYTORCH = workload("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}}})
RBG = workload(
    "workloads.x-k8s.io/v1alpha2", "RoleBasedGroup", {"roles": [{"standalonePattern": {"template": TEMPLATE}}]}
)
KEYS_READ = {"rbg": RBG, "ray": RAY, "knative": KNATIVE, "trainer": RUNTIME, "pytorch": PYTORCH}

JOBSET = workload(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]},
)
LWS = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}})
MPI = workload("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"template": TEMPLATE}}})
KEYS_NOT_READ = {"jobset": JOBSET, "lws": LWS, "mpi": workload("kubeflow.org/v2beta1", "MPIJob", MPI["spec"])}


@pytest.mark.parametrize("obj", KEYS_READ.values(), ids=KEYS_READ)
def test_a_template_read_by_its_controller_is_left_unchanged(obj):
    verdict = verdict_with_fields(obj)
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated"}
    assert "the webhook translates its pods" in verdict.warnings[0]


@pytest.mark.parametrize("obj", KEYS_NOT_READ.values(), ids=KEYS_NOT_READ)
def test_a_template_its_controller_does_not_read_is_rewritten(obj):
    verdict = verdict_with_fields(obj)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    (path,) = paths(obj)
    assert any(operation["path"].startswith(path) for operation in verdict.operations)


def test_a_kind_is_known_only_in_its_own_group():
    strange = workload("example.com/v1", "RayCluster", RAY["spec"])
    assert "does not know how RayCluster uses it" in verdict_with_fields(strange).decisions[0].keep_reason
    assert paths(workload("v1", "Service", KNATIVE["spec"])) == []


# Schemas of a pod template, by whether a published CRD keeps claims.
SHAPES = {Keeps.YES: KEEPS_CLAIMS, Keeps.NO: DROPS_CLAIMS, Keeps.ANY: ANY}


def custom_workload(group_kind: tuple[str, str], version: str = "v7") -> dict:
    return workload(f"{group_kind[0]}/{version}", group_kind[1], {"roles": {"worker": [{"template": TEMPLATE}]}})


def kind_definition(group_kind: tuple[str, str], spec: dict, version: str = "v7") -> dict:
    roles = {
        "type": "object",
        "additionalProperties": {"type": "array", "items": object_with("template", template(spec))},
    }
    return definition(group_kind, (version, object_with("roles", roles)))


def verdict_with_definitions(obj: dict, *definitions: dict):
    kinds = custom_kinds([obj, *definitions])
    volcano_serves = {"schedulers": {"volcano": {"likeCluster": True}}}
    return decide_object(
        obj,
        State(
            configuration=configured(**WHOLE_GPUS, **volcano_serves),
            fleet=UNKNOWN,
            keys=(SIGNING_KEY,),
            custom_kinds=kinds,
        ),
    )


@every("group_kind", KINDS)
def test_each_kind_of_the_table_has_the_stated_outcome(group_kind):
    kind = KINDS[group_kind]
    assert not kind.reads or " " in kind.reads
    for version in ("v7", *kind.drops):
        verdict = verdict_with_definitions(custom_workload(group_kind, version))
        assert verdict.changed is not bool(kind.reads or version in kind.drops)
        assert ("the webhook translates its pods" in " ".join(verdict.warnings)) is not verdict.changed
        assert bool(verdict.stays) is not verdict.changed
        if kind.published.keeps not in SHAPES:
            continue
        # With a CRD like the published one, the CRD decides. A template whose keys a controller reads stays unchanged.
        verdict_by_definition = verdict_with_definitions(
            custom_workload(group_kind, version), kind_definition(group_kind, SHAPES[kind.published.keeps], version)
        )
        assert verdict_by_definition.changed is (not kind.reads and kind.published.keeps is not Keeps.NO)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (KEEPS_CLAIMS, ""),
        (ANY, ""),
        (DROPS_CLAIMS, "its CRD jobsets.jobset.x-k8s.io has no spec.resourceClaims in v7"),
        (BEFORE_131, "its CRD jobsets.jobset.x-k8s.io has no resourceClaims[].resourceClaimTemplateName in v7"),
        (pod_spec(claims=False), "its CRD jobsets.jobset.x-k8s.io has no containers.resources.claims in v7"),
    ],
    ids=["keeps claims", "any fields", "drops resourceClaims", "before 1.31", "drops claims of containers"],
)
def test_the_definition_decides_whether_a_template_is_rewritten(spec, reason):
    group_kind = ("jobset.x-k8s.io", "JobSet")
    verdict = verdict_with_definitions(custom_workload(group_kind), kind_definition(group_kind, spec))
    assert (verdict.changed, verdict.stays.startswith(reason)) == (not reason, True)
    assert {decision.outcome for decision in verdict.decisions} == {
        "translated"
    }  # the outcome is that of the pods; `stays` is about the template


def test_a_template_is_rewritten_only_if_both_definitions_keep_claims():
    group_kind = ("jobset.x-k8s.io", "JobSet")
    for order in ((KEEPS_CLAIMS, DROPS_CLAIMS), (DROPS_CLAIMS, KEEPS_CLAIMS)):
        assert verdict_with_definitions(
            custom_workload(group_kind), *(kind_definition(group_kind, spec) for spec in order)
        ).stays
    # A CRD without the version of the object is ignored, and so is a CRD for a kind of Kubernetes.
    assert verdict_with_definitions(
        custom_workload(group_kind), kind_definition(group_kind, DROPS_CLAIMS, "v8")
    ).changed
    job = workload("batch/v1", "Job", {"template": TEMPLATE})
    assert verdict_with_definitions(job, definition(("batch", "Job"), {"type": "object"})).changed


TPUS = pod({"google.com/tpu": 4})


def test_tpus_stay_on_pods_of_a_leader_worker_set():
    """LeaderWorkerSet's webhook runs after ours, and numbers the workers by the key on each pod."""
    assert verdict_of(TPUS).changed
    worker_pod = copy.deepcopy(TPUS)
    worker_pod["metadata"]["labels"] = {LWS_LABEL: "w"}
    spec = {"leaderWorkerTemplate": {"workerTemplate": {"spec": TPUS["spec"]}}}
    for verdict in (
        verdict_of(worker_pod),
        verdict_with_fields(workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)),
    ):
        assert untouched(verdict)
        assert outcomes(verdict) == {"google.com/tpu": "left"}
        assert "TPU_WORKER_ID" in verdict.warnings[0]
    gpu_pod = pod({"nvidia.com/gpu": 1})
    gpu_pod["metadata"]["labels"] = {LWS_LABEL: "w"}
    assert verdict_of(gpu_pod, **WHOLE_GPUS).changed


@pytest.mark.parametrize("key", ["habana.ai/gaudi", "nvidia.com/gpu"])
def test_devices_of_a_virtual_machine_stay_on_its_pod(key):
    """For every key, KubeVirt's launcher reads the environment variables that the device plugin sets."""
    launcher = pod({key: 1})
    assert verdict_of(launcher, **WHOLE_GPUS).changed
    launcher["metadata"]["labels"] = {"kubevirt.io/created-by": "7f3a"}
    verdict = verdict_of(launcher, **WHOLE_GPUS)
    assert untouched(verdict)
    assert outcomes(verdict) == {key: "left"}
    assert "PCI_RESOURCE" in verdict.warnings[0]


def volcano(**spec) -> dict:
    template = {"spec": pod({"volcano.sh/vgpu-number": 1})["spec"]}
    return workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "template": template}], **spec})


@pytest.mark.parametrize("spec", [{}, {"schedulerName": "volcano"}])
def test_the_warning_about_a_volcano_job_names_its_scheduler(spec):
    verdict = verdict_with_fields(volcano(**spec))
    assert untouched(verdict)
    assert (
        "scheduler 'volcano' is not known to support resource claims; if it does, an administrator can declare `schedulers: {volcano: {claims: true"
        in verdict.warnings[0]
    )


def test_a_job_for_a_volcano_that_supports_claims_is_translated():
    obj = volcano()
    verdict = verdict_with_fields(obj, schedulers={"volcano": {"likeCluster": True}})
    assert verdict.templates
    template = patched(obj, verdict)["spec"]["tasks"][0]["template"]
    assert "schedulerName" not in template["spec"]


def queued_pod(*limits: dict, **options) -> dict:
    manifest = pod(*limits, **options)
    manifest["metadata"]["labels"] = dict(QUEUE_LABELS)
    return manifest


def test_the_reason_for_a_queued_pod_names_the_mapping():
    verdict = verdict_of(queued_pod({"nvidia.com/gpu": 1}), **WHOLE_GPUS)
    assert untouched(verdict)
    assert "deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}]" in verdict.warnings[0]


def test_a_queued_pod_is_translated_if_kueue_counts_its_class():
    assert exactly(verdict_of(queued_pod({"nvidia.com/gpu": 1}), **WHOLE_GPUS, **CLASSES_IN_KUEUE)) == [
        {"class": "gpu.nvidia.com", "count": 1}
    ]
    other_classes = {"kueue": {"deviceClasses": [HAMI]}}
    assert untouched(verdict_of(queued_pod({"nvidia.com/gpu": 1}), **WHOLE_GPUS, **other_classes))


def test_kueue_does_not_count_alternatives():
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    verdict = verdict_of(queued_pod(limits), **GPU_MODELS, **CLASSES_IN_KUEUE)
    assert untouched(verdict)
    assert "firstAvailable" in verdict.warnings[0]
    assert verdict_of(pod(limits), **GPU_MODELS, **CLASSES_IN_KUEUE).templates


def test_a_queued_job_keeps_its_template():
    job = workload("batch/v1", "Job", {"template": TEMPLATE}, QUEUE_LABELS)
    verdict = verdict_with_fields(job)
    assert untouched(verdict)
    assert "Kueue, which counts them in queue team" in verdict.warnings[0]
    assert verdict_with_fields(job, **CLASSES_IN_KUEUE).templates
    assert verdict_with_fields(workload("batch/v1", "Job", {"template": TEMPLATE})).templates


def test_a_queued_deployment_is_left_unchanged():
    deployment = workload("apps/v1", "Deployment", {"template": TEMPLATE}, QUEUE_LABELS)
    verdict = verdict_with_fields(deployment)
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "left"}
