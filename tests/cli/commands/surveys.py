"""Workloads, pods and nodes for the tests of `drawbridge survey`."""

from analysis.configuration import ConfigurationInForce
from analysis.loading import reading_of
from analysis.survey import SurveyScope, overview, report
from cli.reports import as_text
from tests.objects import container, node, obj, owner, pod
from webhook.state import Configuration, Features


def with_limits(name="main", **limits):
    """A container with these limits, whose names are as in `amounts_by_key`."""
    return container(name, amounts_by_key(limits))


def amounts_by_key(amounts):
    """The amounts by key. In a name, the first `_` stands for `/`, and `nvidia_` for `nvidia.com/`."""
    return {key.replace("_", "/", 1).replace("nvidia/", "nvidia.com/"): value for key, value in amounts.items()}


def owned_by(kind, name, version="apps/v1"):
    """The metadata of an object with this controller."""
    return {"ownerReferences": [owner(kind, name, version)]}


def running_pod(name, *containers, node="", owners=None, phase="Running", namespace="a", **metadata):
    assignment = {"nodeName": node} if node else {}
    return pod(
        name, namespace=namespace, phase=phase, containers=list(containers), **assignment, **(owners or {}), **metadata
    )


def workload_object(kind, name, *containers, owners=None, version="apps/v1", **metadata):
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": list(containers)}}
    return obj(kind, name, version, namespace="a", template=template, **(owners or {}), **metadata)


def plugin_node(name, labels=(), **allocatable):
    return node(name, labels=dict(labels), allocatable=amounts_by_key(allocatable))


def survey_of(*objects, scope=None, configuration=None):
    in_force = ConfigurationInForce(configuration or Configuration())
    return overview(reading_of(objects, Features(), in_force=in_force, pods=False), scope or SurveyScope())


# A share of a GPU, and a container that requests the share by HAMi's keys.
SHARE_LIMITS = {"nvidia_gpu": 1, "nvidia_gpumem": 3000, "nvidia_gpucores": 30}
HAMI_CONTAINER = with_limits(**SHARE_LIMITS)


def running_deployment(replicas=3, name="train"):
    """A Deployment, its ReplicaSet and its running pods, as a dump has them."""
    replica_set = workload_object("ReplicaSet", f"{name}-1", HAMI_CONTAINER, owners=owned_by("Deployment", name))
    pods = [
        running_pod(f"{name}-1-{i}", HAMI_CONTAINER, node=f"n{i}", owners=owned_by("ReplicaSet", f"{name}-1"))
        for i in range(replicas)
    ]
    return [workload_object("Deployment", name, HAMI_CONTAINER), replica_set, *pods]


def lines_of(survey, *, is_whole=False):
    """The survey as a terminal shows it; with `is_whole`, it has all workloads and their keys."""
    return [line for title, lines in as_text(report(survey, whole=is_whole)) for line in (title, *lines)]


INFERENCE_SERVICE = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "m", "namespace": "a"},
    "spec": {"predictor": {"model": {"resources": {"limits": HAMI_CONTAINER["resources"]["limits"]}}}},
}


def resource_object(kind, name, **spec):
    """An object of the API group resource.k8s.io."""
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
