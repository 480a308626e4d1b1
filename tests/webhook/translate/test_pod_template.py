"""Pod templates inside workloads."""

import pytest

from cluster.patch import apply_json_patch
from dra.objects.pod import POD_TEMPLATES
from tests.webhook.pods import configured, container, pod
from webhook.admission import decide_object
from webhook.state import State
from webhook.translate import name_of, paths, resolve_pointer

KINDS = [
    ("v1", "Pod", ""),
    ("v1", "PodTemplate", "/template"),
    ("v1", "ReplicationController", "/spec/template"),
    ("apps/v1", "Deployment", "/spec/template"),
    ("apps/v1", "StatefulSet", "/spec/template"),
    ("apps/v1", "DaemonSet", "/spec/template"),
    ("apps/v1", "ReplicaSet", "/spec/template"),
    ("batch/v1", "Job", "/spec/template"),
    ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
]
RAY = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "r", "namespace": "n"},
    "spec": {
        "headGroupSpec": {"template": {"spec": {"containers": [container("head", {"cpu": 1})]}}},
        "workerGroupSpecs": [
            {"template": {"spec": {"containers": [container("worker", {"nvidia.com/gpumem": 1000})]}}},
            {"template": {"spec": {"containers": [container("worker", {"nvidia.com/gpumem": 1000})]}}},
        ],
    },
}


def workload(api_version: str, kind: str, path: str, template: dict) -> dict:
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w", "namespace": "n"}}
    if not path:
        return {**template, **obj}
    inner = obj
    *parents, last = path.strip("/").split("/")
    for part in parents:
        inner = inner.setdefault(part, {})
    inner[last] = template
    return obj


def decide(obj: dict, *, rewrite_unknown: bool = False):
    return decide_object(obj, State(configuration=configured()), rewrite_unknown=rewrite_unknown)


def test_every_kubernetes_kind_with_a_pod_template_is_tested():
    tried = {(api_version.rpartition("/")[0], kind): path for api_version, kind, path in KINDS}
    assert tried == {kind: site.path for kind, site in POD_TEMPLATES.items()}


@pytest.mark.parametrize(("api_version", "kind", "path"), KINDS)
def test_every_pod_template_is_rewritten_in_place(api_version, kind, path):
    obj = workload(api_version, kind, path, pod({"nvidia.com/gpumem": 1000}))
    verdict = decide(obj)
    patched_object = apply_json_patch(obj, verdict.operations)
    assert resolve_pointer(patched_object, f"{path}/spec")["resourceClaims"][0]["name"] == "drawbridge-c0-gpu"
    assert all(operation["path"].startswith(path or "/") for operation in verdict.operations)
    assert {decision.object for decision in verdict.decisions} == {f"{kind}/n/w"}
    assert not decide(patched_object).changed


@pytest.mark.parametrize(("api_version", "kind", "path"), KINDS)
def test_templates_get_the_tolerations_of_their_pods(api_version, kind, path):
    obj = workload(api_version, kind, path, pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}))
    tolerations = resolve_pointer(apply_json_patch(obj, decide(obj).operations), f"{path}/spec").get("tolerations")
    expected = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in ("nvidia.com/gpu", "nvidia.com/gpumem")
    ]
    assert tolerations == (expected if path else None)  # Kubernetes adds them to a pod before it calls webhooks


def test_an_existing_toleration_is_not_added_again():
    toleration = {"key": "nvidia.com/gpumem", "operator": "Exists", "effect": "NoSchedule"}
    obj = workload("apps/v1", "Deployment", "/spec/template", pod({"nvidia.com/gpumem": 1}, tolerations=[toleration]))
    assert apply_json_patch(obj, decide(obj).operations)["spec"]["template"]["spec"]["tolerations"] == [toleration]


def test_unknown_kinds_are_rewritten_only_with_the_option():
    ray = {**RAY, "apiVersion": "example.com/v1"}
    assert not decide(ray).operations
    verdict = decide(ray, rewrite_unknown=True)
    assert list(paths(ray)) == [
        "/spec/headGroupSpec/template",
        "/spec/workerGroupSpecs/0/template",
        "/spec/workerGroupSpecs/1/template",
    ]
    patched_object = apply_json_patch(ray, verdict.operations)
    assert len(verdict.templates) == 1
    assert all("resourceClaims" in group["template"]["spec"] for group in patched_object["spec"]["workerGroupSpecs"])
    assert patched_object["spec"]["headGroupSpec"] == ray["spec"]["headGroupSpec"]


def test_an_object_is_refused_as_a_whole():
    broken = {
        **RAY,
        "spec": {
            **RAY["spec"],
            "headGroupSpec": {"template": {"spec": {"containers": [container("h", {"nvidia.com/gpumem": 1.5})]}}},
        },
    }
    verdict = decide(broken, rewrite_unknown=True)
    assert verdict.refusals
    assert not verdict.changed
    assert not verdict.templates


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"kind": "Deployment", "apiVersion": "apps/v1"},
        {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": 3}},
        {"kind": "Pod", "apiVersion": "other/v1"},
        {"kind": "List", "apiVersion": "v1", "spec": {"items": [1]}},
    ],
)
def test_an_object_without_a_valid_pod_template_passes_unchanged(obj):
    assert not decide(obj, rewrite_unknown=True).changed


def test_names_contain_kind_namespace_and_name():
    assert name_of({"kind": "Job", "metadata": {"generateName": "j-"}}) == "Job/default/j-*"


def test_the_order_of_the_keys_does_not_change_the_order_of_the_templates():
    """An API server stores the keys in its own order, so the same pod is the first in the file and in the cluster."""
    pod = {"spec": {"containers": [{"name": "c"}]}}
    groups = {"workerGroupSpecs": [{"template": pod}, {"template": pod}], "headGroupSpec": {"template": pod}}
    written, stored = (
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec}
        for spec in (groups, dict(sorted(groups.items())))
    )
    expected = [
        "/spec/headGroupSpec/template",
        "/spec/workerGroupSpecs/0/template",
        "/spec/workerGroupSpecs/1/template",
    ]
    assert paths(written) == paths(stored) == expected
