"""Kinds whose controllers keep or drop claims: definitions among the files, templates in unusual places, keys that stay on pods."""

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
UNKNOWN_KIND = ("example.com", "Training")
WHOLE_GPU_CONFIGURATION = {"meanings": {GPU: "whole"}}
WEBHOOK_TRANSLATES_PODS = "the webhook translates its pods"
GPU_POD = {"spec": pod({GPU: 1})["spec"]}
TPU_POD = {"spec": pod({"google.com/tpu": 4})["spec"]}
# By place of the pod template: a spec, and a function from the schema of a pod's spec to the schema of that spec.
TEMPLATE_PLACES = {
    "a template": ({"template": GPU_POD}, lambda spec: object_with("template", template(spec))),
    "a list": (
        {"replicaSpecs": [{"template": GPU_POD}]},
        lambda spec: object_with("replicaSpecs", {"type": "array", "items": object_with("template", template(spec))}),
    ),
    "a map of roles": (
        {"roles": {"worker": {"template": GPU_POD}}},
        lambda spec: object_with(
            "roles", {"type": "object", "additionalProperties": object_with("template", template(spec))}
        ),
    ),
    "a list of lists": (
        {"groups": [[GPU_POD]]},
        lambda spec: object_with("groups", {"type": "array", "items": {"type": "array", "items": template(spec)}}),
    ),
}
# Schemas of a pod's spec: what the definition does to claims, the schema, and the reported loss.
SPEC_SCHEMAS = {
    "keeps claims": (KEEPS_CLAIMS, ""),
    "allows any field": (ANY, ""),
    "drops claims": (DROPS_CLAIMS, "no spec.resourceClaims"),
    "is older than Kubernetes 1.31": (BEFORE_131, "no resourceClaims[].resourceClaimTemplateName"),
    "drops the claims of containers": (pod_spec(claims=False), "no containers.resources.claims"),
}


def custom_object(group_and_kind: tuple[str, str], spec: Any, version: str = "v1") -> Object:
    return {
        "apiVersion": f"{group_and_kind[0]}/{version}",
        "kind": group_and_kind[1],
        "metadata": {"name": "w"},
        "spec": spec,
    }


def object_with_claims(group_and_kind: tuple[str, str], version: str = "v1") -> Object:
    """Return an object whose pod template already has claims."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}]}
    spec["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    return custom_object(group_and_kind, {"template": {"spec": spec}}, version)


def whole_gpu_case(name: str, obj: Object, loss: str = "", cluster_objects: tuple[Object, ...] = ()) -> Case:
    """Return a case with a key that is declared whole. With a reported loss of claims, the object is left; otherwise it is translated."""
    words = (loss, WEBHOOK_TRANSLATES_PODS) if loss else ()
    return Case(name, obj, "left" if loss else "translated", words, cluster_objects, WHOLE_GPU_CONFIGURATION)


CASES = (
    *(
        whole_gpu_case(f"{group_and_kind[1]}: a GPU pod in {place}, the definition {schema_name}", custom_object(group_and_kind, spec), loss, (definition(group_and_kind, ("v1", definition_schema(schema))),))
        for group_and_kind in (NOTEBOOK, JOBSET, UNKNOWN_KIND)
        for place, (spec, definition_schema) in TEMPLATE_PLACES.items()
        for schema_name, (schema, loss) in SPEC_SCHEMAS.items()
    ),
    *(
        Case(f"{group_and_kind[1]}: existing claims, the definition {schema_name}", object_with_claims(group_and_kind), "unknown" if loss else "silent", (loss, "resourceClaims: ") if loss else (), (definition(group_and_kind, ("v1", object_with("template", template(schema)))),))
        for group_and_kind in (NOTEBOOK, UNKNOWN_KIND)
        for schema_name, (schema, loss) in SPEC_SCHEMAS.items()
    ),
    Case("a Notebook with claims, no definition", object_with_claims(NOTEBOOK), "unknown", "drops claims (Kubeflow Notebooks 1.11)"),
    Case("a JobSet with claims, no definition", object_with_claims(JOBSET, "v1alpha2"), "silent"),
    whole_gpu_case("a Notebook, no definition", custom_object(NOTEBOOK, {"template": GPU_POD}), "drops claims (Kubeflow Notebooks 1.11)"),
    whole_gpu_case("an MPIJob v1, no definition", custom_object(MPI, {"mpiReplicaSpecs": {"Worker": {"template": GPU_POD}}}), "drops claims before"),
    # Its CRD is from before structural schemas, and prunes nothing.
    whole_gpu_case("an MPIJob v1alpha2, no definition", custom_object(MPI, {"mpiReplicaSpecs": {"Worker": {"template": GPU_POD}}}, "v1alpha2")),
    whole_gpu_case("an MPIJob v2beta1, no definition", custom_object(MPI, {"mpiReplicaSpecs": {"Worker": {"template": GPU_POD}}}, "v2beta1")),
    Case("an InferenceService that requests no GPU", custom_object(("serving.kserve.io", "InferenceService"), {"predictor": {"model": {"resources": {"limits": {GPU: "0"}}}}}, "v1beta1"), "silent"),
    whole_gpu_case("an AppWrapper around a Job", custom_object(("workload.codeflare.dev", "AppWrapper"), {"components": [{"template": {"kind": "Job", "spec": {"template": GPU_POD}}}]}), "AppWrapper, which keeps its pods off nodes"),
    whole_gpu_case("an AppWrapper of MCAD around a Job", custom_object(("workload.codeflare.dev", "AppWrapper"), {"resources": {"GenericItems": [{"generictemplate": {"kind": "Job", "spec": {"template": GPU_POD}}}]}}, "v1beta1"), "MCAD, which counts the GPUs"),
    Case("an AppWrapper of MCAD around another object", custom_object(("workload.codeflare.dev", "AppWrapper"), {"resources": {"GenericItems": [{"generictemplate": {"own": {"resources": {"limits": {GPU: 1}}}}}]}}, "v1beta1"), "left", "it is read by MCAD, which counts the GPUs"),
    whole_gpu_case("a LeaderWorkerSet with GPUs", custom_object(("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), {"leaderWorkerTemplate": {"workerTemplate": GPU_POD}})),
    Case("a LeaderWorkerSet with TPUs", custom_object(("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), {"leaderWorkerTemplate": {"workerTemplate": TPU_POD}}), "left", "TPU_WORKER_ID"),
    Case("a pod of a LeaderWorkerSet with TPUs", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-0", "labels": {"leaderworkerset.sigs.k8s.io/name": "w"}}, **TPU_POD}, "left", "TPU_WORKER_ID"),
    Case("a KubeAI Model", custom_object(("kubeai.org", "Model"), {"resourceProfile": "nvidia-gpu-l4:1"}), "left", "from a profile"),
    Case("a KubeAI Model without devices", custom_object(("kubeai.org", "Model"), {"resourceProfile": "cpu:2"}), "silent"),
    Case("a HelmRelease of Flux with a GPU in its values", custom_object(("helm.toolkit.fluxcd.io", "HelmRelease"), {"values": {"resources": {"limits": {GPU: 1}}}}, "v2"), "left", "it is read by Flux"),
    whole_gpu_case("two definitions of JobSet, of which one drops claims", custom_object(JOBSET, {"template": GPU_POD}), "no spec.resourceClaims", tuple(definition(JOBSET, ("v1", object_with("template", template(spec_schema)))) for spec_schema in (KEEPS_CLAIMS, DROPS_CLAIMS))),
    whole_gpu_case("a definition of another version of JobSet", custom_object(JOBSET, {"template": GPU_POD}), cluster_objects=(definition(JOBSET, ("v9", object_with("template", template(DROPS_CLAIMS)))),)),
    whole_gpu_case("an object that is stored in a version that drops claims", custom_object(UNKNOWN_KIND, {"template": GPU_POD}, "v2"), "no spec.resourceClaims", (definition(UNKNOWN_KIND, object_with("template", template(DROPS_CLAIMS)), object_with("template", template(KEEPS_CLAIMS))),)),
    whole_gpu_case("a definition with preserveUnknownFields", custom_object(NOTEBOOK, {"template": GPU_POD}), cluster_objects=(definition(NOTEBOOK, ("v1", object_with("template", template(DROPS_CLAIMS))), preserveUnknownFields=True),)),
)  # fmt: skip
