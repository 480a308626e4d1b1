"""Which workloads `drawbridge survey` lists, and the owner that it lists pods under."""

from msgspec.structs import replace

from analysis.loading import reading_of
from analysis.survey import SurveyScope, overview
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    INFERENCE_SERVICE,
    lines_of,
    owned_by,
    plugin_node,
    running_deployment,
    running_pod,
    survey_of,
    with_limits,
    workload_object,
)
from tests.cli.running import manifest, run, run_json
from tests.objects import obj
from webhook.dialects import Outcome
from webhook.state import Features


def test_a_deployment_counts_once_with_its_pods():
    [workload] = survey_of(*running_deployment()).workloads
    assert (workload.kind, workload.name, workload.pods, workload.running_pods) == ("Deployment", "train", 3, 3)
    assert workload.outcome is Outcome.TRANSLATED


def test_deployments_of_one_name_in_two_files_are_two_workloads():
    objects = (
        workload_object("Deployment", "web", HAMI_CONTAINER),
        workload_object("Deployment", "web", with_limits(nvidia_gpu="0.5")),
    )
    reading = replace(reading_of(objects, Features()), places=(("dev/web.yaml", 1), ("prod/web.yaml", 1)))
    survey = overview(reading, SurveyScope())
    assert [(workload.file, workload.outcome.value) for workload in survey.workloads] == [
        ("dev/web.yaml", "translated"),
        ("prod/web.yaml", "refused"),
    ]
    assert any("Deployment/web (prod/web.yaml)" in line for line in lines_of(survey))


def test_a_workload_dumped_into_several_files_is_listed_once():
    objects = tuple(running_deployment())
    for has_uids in (False, True):
        if has_uids:
            objects = tuple(
                {**stored_object, "metadata": {**stored_object["metadata"], "uid": str(i)}}
                for i, stored_object in enumerate(objects)
            )
        places = tuple((f"{i}.yaml", 1) for i in range(len(objects)))
        [workload] = overview(replace(reading_of(objects, Features()), places=places), SurveyScope()).workloads
        assert workload.pods == 3


def deployment_of(name, *containers, claims=()):
    """A Deployment whose pods have these containers and claims."""
    deployment = workload_object("Deployment", name, *containers)
    deployment["spec"]["template"]["spec"]["resourceClaims"] = list(claims)
    return deployment


# The API server refuses the names of these Deployments.
REFUSED_DEPLOYMENTS = [
    deployment_of("Without_Devices", {"name": "c", "image": "i", "resources": {"limits": {"cpu": 1}}}),
    deployment_of("With_Key", HAMI_CONTAINER),
    deployment_of(
        "With_Claim", {"name": "c", "image": "i"}, claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]
    ),
    deployment_of("Of_No_Dialect", with_limits(**{"x.io_gadget": "half"})),
]


def test_a_refused_workload_without_devices_is_not_counted(tmp_path):
    assert {workload.name for workload in survey_of(*REFUSED_DEPLOYMENTS).workloads} == {
        "With_Key",
        "With_Claim",
        "Of_No_Dialect",
    }
    result = run("translate", "-f", manifest(tmp_path / "d.json", *REFUSED_DEPLOYMENTS), "-o", "report")
    assert "Without_Devices" not in result.stdout
    assert result.stdout.splitlines()[0] == ("4 objects, 0 rewritten: 3 refused, 1 without a legacy request")
    assert "'Without_Devices' must be a DNS subdomain" in run("check", "-f", tmp_path / "d.json").stdout


def test_a_namespace_without_objects_is_reported(tmp_path):
    file = manifest(tmp_path / "d.json", *running_deployment())
    result = run("survey", "-f", file, "-n", "aa")
    assert "no object of namespace 'aa' is in the input; it has those of a\n" in result.stderr
    assert "no object" not in run("survey", "-f", file, "-n", "a").stderr


def test_a_running_pod_is_decided_like_an_unscheduled_pod():
    annotations = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,0:;"}
    [workload] = survey_of(running_pod("p", HAMI_CONTAINER, node="n1", annotations=annotations)).workloads
    assert (workload.outcome, workload.running_pods) == (Outcome.TRANSLATED, 1)


def test_pods_are_listed_under_an_owner_missing_from_the_input():
    owner = owned_by("PyTorchJob", "llm", "kubeflow.org/v1")
    [workload] = survey_of(*[running_pod(f"llm-{i}", HAMI_CONTAINER, owners=owner) for i in range(4)]).workloads
    assert (workload.kind, workload.name, workload.pods) == ("PyTorchJob", "llm", 4)


def test_a_workload_of_a_third_party_kind_is_inspected():
    groups = [{"template": {"spec": {"containers": [HAMI_CONTAINER]}}}]
    ray_cluster = obj("RayCluster", "r", "ray.io/v1", namespace="a", workerGroupSpecs=groups)
    owned_pod = running_pod("w", HAMI_CONTAINER, owners=owned_by("RayCluster", "r", "ray.io/v1"))
    [workload] = survey_of(ray_cluster, owned_pod).workloads
    assert (workload.kind, workload.pods) == ("RayCluster", 1)


def test_a_request_in_a_kind_without_pod_templates_is_listed():
    [workload] = survey_of(INFERENCE_SERVICE).workloads
    assert (workload.kind, workload.outcome, workload.pods) == ("InferenceService", Outcome.TRANSLATED, 0)
    assert {key.container for key in workload.keys} == {"predictor/model"}


def test_a_request_outside_of_the_pod_template_is_listed():
    template = workload_object("Deployment", "m", with_limits())["spec"]["template"]
    template["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    spec = {"resources": {"gpu": "1"}, "podTemplate": template}
    version = "production-stack.vllm.ai/v1alpha1"
    runtime = {"apiVersion": version, "kind": "VLLMRuntime", "metadata": {"name": "m"}, "spec": spec}
    [workload] = survey_of(runtime).workloads
    assert [(key.container, key.key, str(key.outcome)) for key in workload.keys] == [
        ("", "nvidia.com/gpu.present", "left"),
        ("resources", "gpu", str(workload.outcome)),
    ]
    assert survey_of({**runtime, "spec": {"podTemplate": template}}).workloads == ()


def test_an_owned_deployments_template_overrides_the_owners_fields():
    owned_deployment = workload_object(
        "Deployment", "m", HAMI_CONTAINER, owners=owned_by("InferenceService", "m", INFERENCE_SERVICE["apiVersion"])
    )
    [workload] = survey_of(
        INFERENCE_SERVICE, owned_deployment, running_pod("m-1", HAMI_CONTAINER, owners=owned_by("Deployment", "m"))
    ).workloads
    assert (workload.kind, workload.pods) == ("InferenceService", 1)
    assert {(key.container, key.amount) for key in workload.keys} == {("main", "1"), ("main", "3000"), ("main", "30")}


def test_a_survey_of_cyclic_owners_ends():
    pods = [running_pod(name, HAMI_CONTAINER, owners=owned_by("Pod", other, "v1")) for name, other in ("pq", "qp")]
    assert sum(workload.pods for workload in survey_of(*pods).workloads) == 2
    owners = [workload_object(kind, kind.lower(), HAMI_CONTAINER, version="x/v1", owners=owned_by(other, other.lower(), "x/v1")) for kind, other in ("AB", "BA")]  # fmt: skip
    owned_pod = running_pod("p", HAMI_CONTAINER, owners=owned_by("A", "a", "x/v1"))
    assert sum(workload.pods for workload in survey_of(*owners, owned_pod).workloads) == 1


def test_a_deeply_nested_object_hides_no_other_workload():
    nested_spec = 1
    for _ in range(5000):
        nested_spec = {"a": nested_spec}
    nested_object = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": nested_spec}
    assert len(survey_of(nested_object, running_pod("p", HAMI_CONTAINER)).workloads) == 1


def test_a_static_pod_is_its_own_workload():
    [workload] = survey_of(running_pod("p", HAMI_CONTAINER, owners=owned_by("Node", "n1", "v1"))).workloads
    assert (workload.kind, workload.name) == ("Pod", "p")


def test_ended_workloads_and_pods_without_requests_are_not_listed():
    ended_job = workload_object("Job", "done", HAMI_CONTAINER, version="batch/v1")
    ended_job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert (
        survey_of(
            running_pod("p", HAMI_CONTAINER, phase="Succeeded"), ended_job, running_pod("web", with_limits())
        ).workloads
        == ()
    )


def test_devices_taken_without_a_request_are_listed():
    container_with_devices = {"name": "m", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    [workload] = survey_of(running_pod("p", container_with_devices)).workloads
    assert (workload.outcome, workload.keys[0].key) == (Outcome.LEFT, "NVIDIA_VISIBLE_DEVICES")
    container_without_devices = {**container_with_devices, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    assert survey_of(running_pod("p", container_without_devices)).workloads == ()


def test_devices_that_a_limit_range_adds_are_listed():
    default = {"type": "Container", "default": {"nvidia.com/gpu": 1}}
    limit_range = obj("LimitRange", "l", namespace="a", limits=[default])
    deployment = workload_object("Deployment", "plain", with_limits())
    assert survey_of(deployment).workloads == ()
    [workload] = survey_of(deployment, limit_range).workloads
    assert [(key.key, key.outcome.value) for key in workload.keys] == [("nvidia.com/gpu", "left")]


def test_a_workload_with_claims_of_its_own_has_no_outcome(tmp_path):
    deployment = deployment_of(
        "own", {"name": "c", "image": "i"}, claims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]
    )
    survey = survey_of(deployment)
    [workload] = survey.workloads
    assert (workload.outcome, workload.potential_outcome, workload.keys) == (None, None, ())
    lines = lines_of(survey)
    assert "  own claims          1  have no keys, but claims of their own (0 pods)" in lines
    assert "  own claims  Deployment/own  0/0" in lines
    file = manifest(tmp_path / "own.json", deployment)
    _, answer = run_json("survey", "-f", file, "--fail-on", "approximated")
    assert (answer["outcomes"], answer["workloads"][0]["outcome"]) == ({}, None)
    assert "own claims" in run("survey", "-f", file, "-o", "markdown").stdout


def test_a_variable_beside_claims_is_no_request():
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    container = {"name": "c", "image": "i", "env": [variable], "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    [workload] = survey_of(deployment_of("own", container, claims=claims)).workloads
    assert (workload.outcome, workload.keys) == (None, ())


def test_a_scope_limits_workloads_and_not_the_counted_devices():
    objects = [
        *running_deployment(),
        running_pod("other", HAMI_CONTAINER, namespace="b", node="n0"),
        plugin_node("n0", nvidia_gpu=10),
    ]
    survey = survey_of(*objects, scope=SurveyScope(namespaces=frozenset({"b"})))
    assert [workload.name for workload in survey.workloads] == ["other"]
    assert survey.plugins[0].migrating_devices == 2
    labelled_survey = survey_of(*objects, scope=SurveyScope(labels=lambda labels: labels.get("app") == "train"))
    assert [workload.name for workload in labelled_survey.workloads] == ["train"]


def test_a_repository_is_surveyed_without_its_templates_and_other_files(tmp_path):
    """A chart's templates and a workflow are counted as skipped, as in `check`, and are not broken input."""
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "templates" / "deployment.yaml").write_text(
        "{{- if .Values.on }}\nkind: Deployment\n{{- end }}\n"
    )
    (tmp_path / "workflow.yml").write_text("on: push\njobs: {}\n")
    manifest(tmp_path / "app.yaml", workload_object("Deployment", "web", with_limits(nvidia_gpu=1)))
    code, answer = run_json("survey", "-f", tmp_path, "--fail-on", "never")
    assert code == 0
    assert [(workload["name"], workload["outcome"]) for workload in answer["workloads"]] == [("web", "translated")]
    assert sorted((skip["file"].rpartition("/")[2], skip["reason"]) for skip in answer["skippedDocuments"]) == [
        ("deployment.yaml", "template"),
        ("workflow.yml", "other"),
    ]
