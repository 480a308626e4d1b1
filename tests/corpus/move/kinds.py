"""Kinds whose owners read or drop fields: definitions among the files, templates in unusual places, keys that stay on pods."""

from typing import Any

from tests.corpus.move import GPU, Case, Object
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
from tests.webhook.pods import pod

NOTEBOOK, MPI, JOBSET = ("kubeflow.org", "Notebook"), ("kubeflow.org", "MPIJob"), ("jobset.x-k8s.io", "JobSet")
STRANGE = ("example.com", "Training")
WHOLE = {"meanings": {GPU: "whole"}}
AT_WEBHOOK = "the webhook translates its pods"
POD = {"spec": pod({GPU: 1})["spec"]}
TPUS = {"spec": pod({"google.com/tpu": 4})["spec"]}
# By place of the pod template: a spec, and a function from the schema of a pod's spec to the schema of that spec.
PLACES = {
    "a template": ({"template": POD}, lambda spec: object_with("template", template(spec))),
    "a list": (
        {"replicaSpecs": [{"template": POD}]},
        lambda spec: object_with("replicaSpecs", {"type": "array", "items": object_with("template", template(spec))}),
    ),
    "a map of roles": (
        {"roles": {"worker": {"template": POD}}},
        lambda spec: object_with(
            "roles", {"type": "object", "additionalProperties": object_with("template", template(spec))}
        ),
    ),
    "a list of lists": (
        {"groups": [[POD]]},
        lambda spec: object_with("groups", {"type": "array", "items": {"type": "array", "items": template(spec)}}),
    ),
}
# Schemas of a pod's spec, each with the reported loss of claims.
SHAPES = {
    "kept": (KEEPS_CLAIMS, ""),
    "open": (ANY, ""),
    "dropped": (DROPS_CLAIMS, "no spec.resourceClaims"),
    "older": (BEFORE_131, "no resourceClaims[].resourceClaimTemplateName"),
    "unclaimed": (pod_spec(claims=False), "no containers.resources.claims"),
}


def thing(both: tuple[str, str], spec: Any, version: str = "v1") -> Object:
    return {"apiVersion": f"{both[0]}/{version}", "kind": both[1], "metadata": {"name": "w"}, "spec": spec}


def claiming(both: tuple[str, str], version: str = "v1") -> Object:
    """Return an object whose pod template already has claims."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}]}
    spec["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    return thing(both, {"template": {"spec": spec}}, version)


def case(name: str, given: Object, stays: str = "", around: tuple[Object, ...] = (), becomes: str = "") -> Case:
    words = (stays, AT_WEBHOOK) if stays else ()
    return Case(name, given, becomes or ("left" if stays else "translated"), words, around, WHOLE)


CASES = (
    *(
        case(f"{both[1]}: claims in {place}, {shape}", thing(both, spec), stays, (definition(both, ("v1", of(schema))),))
        for both in (NOTEBOOK, JOBSET, STRANGE)
        for place, (spec, of) in PLACES.items()
        for shape, (schema, stays) in SHAPES.items()
    ),
    *(
        Case(f"{both[1]}: claims that are there, {shape}", claiming(both), "unknown" if lost else "silent", (lost, "resourceClaims: ") if lost else (), (definition(both, ("v1", object_with("template", template(schema)))),))
        for both in (NOTEBOOK, STRANGE)
        for shape, (schema, lost) in SHAPES.items()
    ),
    Case("a Notebook with claims, no definition", claiming(NOTEBOOK), "unknown", "drops claims (Kubeflow Notebooks 1.11)"),
    Case("a JobSet with claims, no definition", claiming(JOBSET, "v1alpha2"), "silent"),
    case("a Notebook, no definition", thing(NOTEBOOK, {"template": POD}), "drops claims (Kubeflow Notebooks 1.11)"),
    case("an MPIJob v1, no definition", thing(MPI, {"mpiReplicaSpecs": {"Worker": {"template": POD}}}), "drops claims before"),
    case("an MPIJob v2beta1, no definition", thing(MPI, {"mpiReplicaSpecs": {"Worker": {"template": POD}}}, "v2beta1")),
    case("an AppWrapper around a Job", thing(("workload.codeflare.dev", "AppWrapper"), {"components": [{"template": {"kind": "Job", "spec": {"template": POD}}}]}), "AppWrapper, which keeps its pods off nodes"),
    case("a LeaderWorkerSet with GPUs", thing(("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), {"leaderWorkerTemplate": {"workerTemplate": POD}})),
    Case("a LeaderWorkerSet with TPUs", thing(("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), {"leaderWorkerTemplate": {"workerTemplate": TPUS}}), "left", "TPU_WORKER_ID"),
    Case("its pod", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-0", "labels": {"leaderworkerset.sigs.k8s.io/name": "w"}}, **TPUS}, "left", "TPU_WORKER_ID"),
    Case("a KubeAI Model", thing(("kubeai.org", "Model"), {"resourceProfile": "nvidia-gpu-l4:1"}), "left", "from a profile"),
    Case("a KubeAI Model without devices", thing(("kubeai.org", "Model"), {"resourceProfile": "cpu:2"}), "silent"),
    Case("Flux values", thing(("helm.toolkit.fluxcd.io", "HelmRelease"), {"values": {"resources": {"limits": {GPU: 1}}}}, "v2"), "unknown", "Flux renders a chart"),
    case("two definitions, one drops", thing(JOBSET, {"template": POD}), "no spec.resourceClaims", tuple(definition(JOBSET, ("v1", object_with("template", template(one)))) for one in (KEEPS_CLAIMS, DROPS_CLAIMS))),
    case("a definition of another version", thing(JOBSET, {"template": POD}), around=(definition(JOBSET, ("v9", object_with("template", template(DROPS_CLAIMS)))),)),
    case("stored in a version that drops", thing(STRANGE, {"template": POD}, "v2"), "no spec.resourceClaims", (definition(STRANGE, object_with("template", template(DROPS_CLAIMS)), object_with("template", template(KEEPS_CLAIMS))),)),
    case("preserveUnknownFields", thing(NOTEBOOK, {"template": POD}), around=(definition(NOTEBOOK, ("v1", object_with("template", template(DROPS_CLAIMS))), preserveUnknownFields=True),)),
)  # fmt: skip
