"""Workload kinds of other projects: their templates are rewritten unless a controller reads their keys."""

import copy

import pytest

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
    HAMI,
    KEY,
    SIZES,
    UNKNOWN,
    WHOLE,
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
QUEUED = {QUEUE: "team"}
MAPPED = {"kueue": {"deviceClasses": ["gpu.nvidia.com", HAMI]}}


def workload(version: str, kind: str, spec: dict, labels: dict | None = None) -> dict:
    metadata = {"name": "w", "namespace": "n", "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def done_with(obj: dict, **fields):
    state = State(configuration=configured(**{**WHOLE, **fields}), fleet=UNKNOWN, keys=(KEY,))
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
READ = {"rbg": RBG, "ray": RAY, "knative": KNATIVE, "trainer": RUNTIME, "pytorch": PYTORCH}

JOBSET = workload(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]},
)
LWS = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}})
MPI = workload("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"template": TEMPLATE}}})
FREE = {"jobset": JOBSET, "lws": LWS, "mpi": workload("kubeflow.org/v2beta1", "MPIJob", MPI["spec"])}


@pytest.mark.parametrize("obj", READ.values(), ids=READ)
def test_a_template_read_by_its_controller_is_left_unchanged(obj):
    verdict = done_with(obj)
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated"}
    assert "the webhook translates its pods" in verdict.warnings[0]


@pytest.mark.parametrize("obj", FREE.values(), ids=FREE)
def test_a_template_its_controller_does_not_read_is_rewritten(obj):
    verdict = done_with(obj)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    (path,) = paths(obj)
    assert any(operation["path"].startswith(path) for operation in verdict.operations)


def test_the_kind_of_another_group_is_another_kind():
    strange = workload("example.com/v1", "RayCluster", RAY["spec"])
    assert "does not know how RayCluster uses it" in done_with(strange).decisions[0].keep_reason
    assert paths(workload("v1", "Service", KNATIVE["spec"])) == []


# The schema of a pod template, by what a published definition keeps.
SHAPES = {Keeps.YES: KEEPS_CLAIMS, Keeps.NO: DROPS_CLAIMS, Keeps.ANY: ANY}


def some(both: tuple[str, str], version: str = "v7") -> dict:
    return workload(f"{both[0]}/{version}", both[1], {"roles": {"worker": [{"template": TEMPLATE}]}})


def defined(both: tuple[str, str], spec: dict, version: str = "v7") -> dict:
    roles = {
        "type": "object",
        "additionalProperties": {"type": "array", "items": object_with("template", template(spec))},
    }
    return definition(both, (version, object_with("roles", roles)))


def done_beside(obj: dict, *definitions: dict):
    known = custom_kinds([obj, *definitions])
    volcano_serves = {"schedulers": {"volcano": {"likeCluster": True}}}
    return decide_object(
        obj, State(configuration=configured(**WHOLE, **volcano_serves), fleet=UNKNOWN, keys=(KEY,), custom_kinds=known)
    )


@pytest.mark.parametrize("both", KINDS, ids="/".join)
def test_each_row_of_the_table_states_the_outcome(both):
    kind = KINDS[both]
    assert not kind.reads or " " in kind.reads
    for version in ("v7", *kind.drops):
        verdict = done_beside(some(both, version))
        assert verdict.changed is not bool(kind.reads or version in kind.drops)
        assert ("the webhook translates its pods" in " ".join(verdict.warnings)) is not verdict.changed
        assert bool(verdict.stays) is not verdict.changed
        if kind.published.keeps not in SHAPES:
            continue
        # With a definition of the published shape, the definition decides. A template whose keys a controller reads stays unchanged.
        shown = done_beside(some(both, version), defined(both, SHAPES[kind.published.keeps], version))
        assert shown.changed is (not kind.reads and kind.published.keeps is not Keeps.NO)


@pytest.mark.parametrize(
    ("spec", "stays"),
    [
        (KEEPS_CLAIMS, ""),
        (ANY, ""),
        (DROPS_CLAIMS, "its CRD jobsets.jobset.x-k8s.io has no spec.resourceClaims in v7"),
        (BEFORE_131, "its CRD jobsets.jobset.x-k8s.io has no resourceClaims[].resourceClaimTemplateName in v7"),
        (pod_spec(claims=False), "its CRD jobsets.jobset.x-k8s.io has no containers.resources.claims in v7"),
    ],
    ids=range(5),
)
def test_the_definition_decides_whether_a_template_is_rewritten(spec, stays):
    both = ("jobset.x-k8s.io", "JobSet")
    verdict = done_beside(some(both), defined(both, spec))
    assert (verdict.changed, verdict.stays.startswith(stays)) == (not stays, True)
    assert {decision.outcome for decision in verdict.decisions} == {
        "translated"
    }  # of the pods; `stays` is of the object


def test_with_two_definitions_either_may_be_in_force():
    both = ("jobset.x-k8s.io", "JobSet")
    for order in ((KEEPS_CLAIMS, DROPS_CLAIMS), (DROPS_CLAIMS, KEEPS_CLAIMS)):
        assert done_beside(some(both), *(defined(both, spec) for spec in order)).stays
    # A definition of another version does not count, and no definition overrides a kind of Kubernetes.
    assert done_beside(some(both), defined(both, DROPS_CLAIMS, "v8")).changed
    job = workload("batch/v1", "Job", {"template": TEMPLATE})
    assert done_beside(job, definition(("batch", "Job"), {"type": "object"})).changed


TPUS = pod({"google.com/tpu": 4})


def test_tpus_stay_on_pods_of_a_leader_worker_set():
    """The webhook of LeaderWorkerSet runs after ours and reads the key on each pod to number the workers."""
    assert verdict_of(TPUS).changed
    marked = copy.deepcopy(TPUS)
    marked["metadata"]["labels"] = {LWS_LABEL: "w"}
    spec = {"leaderWorkerTemplate": {"workerTemplate": {"spec": TPUS["spec"]}}}
    for done in (
        verdict_of(marked),
        done_with(workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)),
    ):
        assert untouched(done)
        assert outcomes(done) == {"google.com/tpu": "left"}
        assert "TPU_WORKER_ID" in done.warnings[0]
    whole = pod({"nvidia.com/gpu": 1})
    whole["metadata"]["labels"] = {LWS_LABEL: "w"}
    assert verdict_of(whole, **WHOLE).changed


@pytest.mark.parametrize("key", ["habana.ai/gaudi", "nvidia.com/gpu"])
def test_devices_of_a_virtual_machine_stay_on_its_pod(key):
    """KubeVirt's launcher reads the variables of the device plugin for every key."""
    launcher = pod({key: 1})
    assert verdict_of(launcher, **WHOLE).changed
    launcher["metadata"]["labels"] = {"kubevirt.io/created-by": "7f3a"}
    verdict = verdict_of(launcher, **WHOLE)
    assert untouched(verdict)
    assert outcomes(verdict) == {key: "left"}
    assert "PCI_RESOURCE" in verdict.warnings[0]


def volcano(**spec) -> dict:
    template = {"spec": pod({"volcano.sh/vgpu-number": 1})["spec"]}
    return workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "template": template}], **spec})


@pytest.mark.parametrize("spec", [{}, {"schedulerName": "volcano"}])
def test_a_volcano_job_names_the_scheduler_of_its_pods(spec):
    verdict = done_with(volcano(**spec))
    assert untouched(verdict)
    assert (
        "scheduler 'volcano' is not known to support resource claims; if it does, an administrator can declare `schedulers: {volcano: {claims: true"
        in verdict.warnings[0]
    )


def test_a_volcano_that_serves_claims_keeps_its_job():
    obj = volcano()
    verdict = done_with(obj, schedulers={"volcano": {"likeCluster": True}})
    assert verdict.templates
    template = patched(obj, verdict)["spec"]["tasks"][0]["template"]
    assert "schedulerName" not in template["spec"]


def queued(*limits: dict, **more) -> dict:
    manifest = pod(*limits, **more)
    manifest["metadata"]["labels"] = dict(QUEUED)
    return manifest


def test_a_queued_pod_stays_with_the_missing_mapping():
    verdict = verdict_of(queued({"nvidia.com/gpu": 1}), **WHOLE)
    assert untouched(verdict)
    assert "deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}]" in verdict.warnings[0]


def test_a_pod_in_a_queue_that_counts_its_class_moves():
    assert exactly(verdict_of(queued({"nvidia.com/gpu": 1}), **WHOLE, **MAPPED)) == [
        {"class": "gpu.nvidia.com", "count": 1}
    ]
    other = {"kueue": {"deviceClasses": [HAMI]}}
    assert untouched(verdict_of(queued({"nvidia.com/gpu": 1}), **WHOLE, **other))


def test_kueue_does_not_count_alternatives():
    half = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    verdict = verdict_of(queued(half), **SIZES, **MAPPED)
    assert untouched(verdict)
    assert "firstAvailable" in verdict.warnings[0]
    assert verdict_of(pod(half), **SIZES, **MAPPED).templates


def test_a_queued_job_keeps_its_template():
    job = workload("batch/v1", "Job", {"template": TEMPLATE}, QUEUED)
    verdict = done_with(job)
    assert untouched(verdict)
    assert "Kueue, which counts them in queue team" in verdict.warnings[0]
    assert done_with(job, **MAPPED).templates
    assert done_with(workload("batch/v1", "Job", {"template": TEMPLATE})).templates


def test_pods_of_a_queued_deployment_are_counted_individually():
    deployment = workload("apps/v1", "Deployment", {"template": TEMPLATE}, QUEUED)
    verdict = done_with(deployment)
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "left"}
