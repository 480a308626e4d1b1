"""`drawbridge survey` of a namespace with a mode, and with a canary, which is the share of workloads that the webhook translates."""

import pytest

from analysis.survey.rows import findings
from cluster import manifests
from dra import codes
from dra.finding import Severity
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    lines_of,
    owned_by,
    plugin_node,
    resource_object,
    running_deployment,
    running_pod,
    survey_of,
    with_limits,
    workload_object,
)
from tests.cli.running import manifest, run
from tests.webhook.pods import EXAMPLES, configured
from webhook.dialects import Outcome
from webhook.names import MODE_LABEL

FITTING_CONTAINER, OVERSIZED_CONTAINER = (
    with_limits(nvidia_gpu=1, nvidia_gpumem=3000),
    with_limits(nvidia_gpu=1, nvidia_gpumem=900_000),
)


def in_mode(mode, *objects):
    """The objects, and their namespace with this mode label."""
    return [
        *objects,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {MODE_LABEL: mode}}},
    ]


def fleet_with_deployments(*containers):
    """A Deployment for each container, and the example fleet."""
    deployments = [workload_object("Deployment", f"d{number}", limits) for number, limits in enumerate(containers)]
    return [*deployments, *[document.object for document in manifests.read([str(EXAMPLES / "fleet")])]]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_observe_and_warn_leave_workloads_and_show_the_potential_outcome(mode, tmp_path):
    objects = fleet_with_deployments(FITTING_CONTAINER, OVERSIZED_CONTAINER)
    enforced_survey, survey = survey_of(*objects), survey_of(*in_mode(mode, *objects))
    assert [workload.outcome for workload in enforced_survey.workloads] == [Outcome.APPROXIMATED, Outcome.REFUSED]
    assert [(workload.outcome, workload.potential_outcome) for workload in survey.workloads] == [
        (Outcome.LEFT, Outcome.APPROXIMATED),
        (Outcome.LEFT, Outcome.REFUSED),
    ]
    assert {(key.outcome, bool(key.potential_outcome)) for workload in survey.workloads for key in workload.keys} == {
        (Outcome.LEFT, True)
    }
    for workload, enforced_workload in zip(survey.workloads, enforced_survey.workloads, strict=True):
        assert {key.key for key in workload.keys} == {key.key for key in enforced_workload.keys}
        assert {key.detail for key in workload.keys if key.potential_outcome == "refused"} == {
            key.detail for key in enforced_workload.keys if key.outcome == "refused"
        }
    # The mode does not change reasons, obstacles and freed devices.
    assert (survey.reasons, survey.obstacles, survey.plugins) == (
        enforced_survey.reasons,
        enforced_survey.obstacles,
        enforced_survey.plugins,
    )
    assert survey.modes == {"a": mode}
    lines = lines_of(survey, is_whole=True)
    assert f"Workloads of a (mode {mode})" in lines
    assert any("would be approximated: nvidia.com/gpu=1, nvidia.com/gpumem=3000" in line for line in lines)
    assert any(f"main: nvidia.com/gpumem  {mode}: would be translated: 3000 MiB" in line for line in lines)
    [total] = [line for line in lines if "keep their keys" in line]
    assert total.endswith("(0 pods, 1 would be approximated in mode enforce, 1 would be refused in mode enforce)")
    found_codes = {(finding.code, finding.severity) for reported in findings(survey) for finding in reported.findings}
    assert found_codes == {("M001", Severity.WARNING), ("R020", Severity.WARNING)}
    file = manifest(tmp_path / "all.json", *in_mode(mode, *objects))
    assert run("survey", "-f", file).exit_code == 0
    assert run("survey", "-f", file, "--mode", "enforce").exit_code == 1


def test_a_pods_own_claim_is_refused_like_a_key():
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 20}}]}}
    template = resource_object("ResourceClaimTemplate", "t", spec=spec)
    template["metadata"]["namespace"] = "a"
    pod = running_pod("own", {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}, phase="")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    objects = (pod, template, *fleet_with_deployments())
    [enforced], [observed] = survey_of(*objects).workloads, survey_of(*in_mode("observe", *objects)).workloads
    assert (enforced.outcome, observed.outcome, observed.potential_outcome) == (
        Outcome.REFUSED,
        Outcome.LEFT,
        Outcome.REFUSED,
    )
    assert [(key.code, key.outcome.value) for key in enforced.keys] == [
        (key.code, key.potential_outcome) for key in observed.keys
    ]


def test_mode_off_shows_no_potential_outcome():
    survey = survey_of(*in_mode("off", *fleet_with_deployments(FITTING_CONTAINER)))
    [workload] = survey.workloads
    assert (workload.outcome, workload.potential_outcome) == (Outcome.LEFT, None)
    assert {(key.mode, key.detail, key.until) for key in workload.keys} == {
        ("off", f"its namespace a has the label {MODE_LABEL}=off", "")
    }
    assert "S003" not in {obstacle.code for obstacle in survey.obstacles}
    survey = survey_of(*fleet_with_deployments(FITTING_CONTAINER), configuration=configured(mode="off"))
    assert {key.detail for workload in survey.workloads for key in workload.keys} == {
        "the configuration sets mode: off"
    }


def test_a_key_that_waits_for_its_driver_ignores_the_mode():
    enforced_survey = survey_of(*running_deployment(), plugin_node("n0", nvidia_gpu=10))
    observed_survey = survey_of(*in_mode("observe", *running_deployment(), plugin_node("n0", nvidia_gpu=10)))
    assert observed_survey.workloads[0].keys == enforced_survey.workloads[0].keys
    assert observed_survey.workloads[0].potential_outcome is None


def test_an_invalid_mode_label_is_an_obstacle_and_means_warn():
    survey = survey_of(*in_mode("Enforce", *running_deployment()))
    assert survey.modes == {"a": "warn"}
    [finding] = [obstacle for obstacle in survey.obstacles if obstacle.code == "D214"]
    assert (finding.object, finding.remedy) == ("Namespace/a", codes.CODES["D214"].remedy)
    assert "drawbridge.dev/mode='Enforce' is not a valid mode" in finding.message


def test_the_canary_chooses_workloads_by_their_names():
    """Stored pods that differ only by their controllers are decided separately."""
    pods = [
        running_pod(
            f"p{number}", HAMI_CONTAINER, node="n", uid=f"u{number}", owners=owned_by("ReplicaSet", f"r{number}")
        )
        for number in range(20)
    ]
    survey = survey_of(*pods, configuration=configured(canary=50))
    assert {(workload.outcome, workload.potential_outcome) for workload in survey.workloads} == {
        (Outcome.TRANSLATED, None),
        (Outcome.LEFT, Outcome.TRANSLATED),
    }
