"""Kinds of other projects: their templates are found, and stay where a controller reads the keys in them; queues and schedulers count."""

import copy

import pytest

from tests.webhook.pods import (
    HAMI,
    KEY,
    SIZES,
    UNKNOWN,
    WHOLE,
    actions,
    became,
    configured,
    exactly,
    patched,
    pod,
    untouched,
)
from webhook.state.state import State
from webhook.translate import paths, translate_object
from webhook.translate.workload_kind import KINDS, QUEUE

TEMPLATE = {"spec": pod({"nvidia.com/gpu": 1})["spec"]}
QUEUED = {QUEUE: "team"}
MAPPED = {"kueue": {"deviceClasses": ["gpu.nvidia.com", HAMI]}}


def workload(version: str, kind: str, spec: dict, labels: dict | None = None) -> dict:
    metadata = {"name": "w", "namespace": "n", "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def done_with(obj: dict, **fields):
    state = State(configuration=configured(**{**WHOLE, **fields}), fleet=UNKNOWN, keys=(KEY,))
    return translate_object(obj, state)


RAY = workload("ray.io/v1", "RayCluster", {"workerGroupSpecs": [{"groupName": "g", "template": TEMPLATE}]})
KNATIVE = workload("serving.knative.dev/v1", "Service", {"template": TEMPLATE})
RUNTIME = workload(
    "trainer.kubeflow.org/v1alpha1",
    "ClusterTrainingRuntime",
    {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}]}}},
)
PYTORCH = workload("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}}})
READ = {"ray": RAY, "knative": KNATIVE, "trainer": RUNTIME, "pytorch": PYTORCH}

JOBSET = workload(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]},
)
LWS = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}})
MPI = workload("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"template": TEMPLATE}}})
FREE = {"jobset": JOBSET, "lws": LWS, "mpi": MPI}


@pytest.mark.parametrize("obj", READ.values(), ids=READ)
def test_a_template_that_somebody_reads_stays_and_its_pods_are_told(obj):
    done = done_with(obj)
    assert untouched(done)
    assert actions(done) == {"nvidia.com/gpu": "translated"}
    assert "its pods are translated at the webhook" in done.warnings[0]


@pytest.mark.parametrize("obj", FREE.values(), ids=FREE)
def test_a_template_that_nobody_reads_is_rewritten(obj):
    done = done_with(obj)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]
    (path,) = paths(obj)
    assert any(operation["path"].startswith(path) for operation in done.operations)


def test_the_kind_of_another_group_is_another_kind():
    assert paths(workload("example.com/v1", "RayCluster", RAY["spec"])) == []
    assert paths(workload("v1", "Service", KNATIVE["spec"])) == []


def test_every_reader_is_named_with_what_it_reads_for():
    for kind in KINDS.values():
        assert not kind.reads or " " in kind.reads


def volcano(**spec) -> dict:
    template = {"spec": pod({"volcano.sh/vgpu-number": 1})["spec"]}
    return workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "template": template}], **spec})


@pytest.mark.parametrize("spec", [{}, {"schedulerName": "volcano"}])
def test_a_volcano_job_names_the_scheduler_of_its_pods(spec):
    done = done_with(volcano(**spec))
    assert untouched(done)
    assert (
        "scheduler 'volcano' is not known to serve resource claims; if it does, declare `schedulers: {volcano: {claims: true"
        in done.warnings[0]
    )


def test_a_volcano_that_serves_claims_keeps_its_job():
    obj = volcano()
    done = done_with(obj, schedulers={"volcano": {"likeCluster": True}})
    assert done.templates
    template = patched(obj, done)["spec"]["tasks"][0]["template"]
    assert "schedulerName" not in template["spec"]


def queued(*limits: dict, **more) -> dict:
    made = pod(*limits, **more)
    made["metadata"]["labels"] = dict(QUEUED)
    return made


def test_a_pod_in_a_queue_stays_and_the_mapping_to_write_is_told():
    done = became(queued({"nvidia.com/gpu": 1}), **WHOLE)
    assert untouched(done)
    assert "deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}]" in done.warnings[0]


def test_a_pod_in_a_queue_that_counts_its_class_moves():
    assert exactly(became(queued({"nvidia.com/gpu": 1}), **WHOLE, **MAPPED)) == [
        {"class": "gpu.nvidia.com", "count": 1}
    ]
    other = {"kueue": {"deviceClasses": [HAMI]}}
    assert untouched(became(queued({"nvidia.com/gpu": 1}), **WHOLE, **other))


def test_kueue_does_not_count_alternatives():
    half = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    done = became(queued(half), **SIZES, **MAPPED)
    assert untouched(done)
    assert "firstAvailable" in done.warnings[0]
    assert became(pod(half), **SIZES, **MAPPED).templates


def test_a_job_in_a_queue_keeps_its_template_which_kueue_counts():
    job = workload("batch/v1", "Job", {"template": TEMPLATE}, QUEUED)
    done = done_with(job)
    assert untouched(done)
    assert "Kueue, which counts them in queue team" in done.warnings[0]
    assert done_with(job, **MAPPED).templates
    assert done_with(workload("batch/v1", "Job", {"template": TEMPLATE})).templates


def test_pods_of_a_deployment_in_a_queue_are_counted_one_by_one():
    deployment = workload("apps/v1", "Deployment", {"template": TEMPLATE}, QUEUED)
    done = done_with(deployment)
    assert untouched(done)
    assert actions(done) == {"nvidia.com/gpu": "left"}
