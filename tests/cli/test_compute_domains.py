"""Commands that read NVIDIA's ComputeDomain from files know the template that its controller creates.

Each worker of a domain claims a channel by this template: a device of the driver compute-domain.nvidia.com.
"""

from pathlib import Path

from tests.cli.running import manifest, run, run_json
from tests.objects import obj

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "multinode"
TRAIN = EXAMPLE / "train.yaml"
NODES = EXAMPLE / "nodes.yaml"
UID = "11111111-2222-4333-8444-555555555555"


def test_the_multinode_example_has_no_findings():
    code, answer = run_json("check", "-f", EXAMPLE)
    assert (code, answer["findings"]) == (0, [])


def test_a_legacy_request_beside_a_domains_channel_is_translated():
    code, answer = run_json("translate", "-f", TRAIN, "--inventory", NODES)
    assert code == 0
    assert answer["warnings"] == []
    [job] = [obj for obj in answer["items"] if obj["kind"] == "Job"]
    spec = job["spec"]["template"]["spec"]
    [worker] = spec["containers"]
    assert "limits" not in worker["resources"]
    assert [claim["name"] for claim in worker["resources"]["claims"]] == ["channel", "drawbridge-worker-gpu"]
    assert spec["resourceClaims"][0] == {"name": "channel", "resourceClaimTemplateName": "train-channel"}
    [template] = [obj for obj in answer["items"] if obj["kind"] == "ResourceClaimTemplate"]
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == ("gpu.nvidia.com", 4)


def test_a_survey_and_explain_know_the_template_of_a_domain():
    code, answer = run_json("survey", "-f", EXAMPLE)
    assert (code, [workload["outcome"] for workload in answer["workloads"]]) == (0, ["translated"])
    assert answer["workloads"][0]["warnings"] == []
    result = run("explain", "job/train", "-n", "research", "-f", EXAMPLE)
    assert "from template train-channel" in result.stdout
    assert "wrong" not in result.stdout, "the claim of a pod in a file is created with the pod"


def test_simulated_workers_of_a_domain_run_on_different_nodes():
    code, answer = run_json("simulate", "-f", EXAMPLE)
    assert code == 0
    assert sorted(pod["node"] for pod in answer["pods"]) == ["gb200-1", "gb200-2"]
    for pod in answer["pods"]:
        channels = [device for device in pod["devices"] if device.startswith("compute-domain.nvidia.com/")]
        assert (len(pod["devices"]), len(channels)) == (5, 1)


def test_a_template_in_the_files_overrides_a_domains_template(tmp_path):
    spec = {"devices": {"requests": [{"name": "channel", "exactly": {"deviceClassName": "mine"}}]}}
    own_template = obj(
        "ResourceClaimTemplate", "train-channel", "resource.k8s.io/v1", namespace="research", uid=UID, spec=spec
    )
    template_file = manifest(tmp_path / "own.yaml", own_template)
    for files in (("-f", template_file, "-f", EXAMPLE), ("-f", EXAMPLE, "-f", template_file)):
        simulated = run("simulate", *files)
        assert "defined more than once" not in simulated.stderr
        assert "DeviceClass mine does not exist" in simulated.stdout
        [workload] = run_json("survey", *files)[1]["workloads"]
        assert workload["outcome"] == "refused"
