"""The commands apply modes, canaries, fences and refusals like the webhook."""

import json

import pytest

from analysis.configuration import source_of
from cli.playground import playground
from cluster import manifests
from tests.cli.running import run
from tests.objects import claim, claim_template, exactly, namespace
from tests.webhook.admission.test_decide import answer, applied, review
from tests.webhook.admission.test_verdict import FLEET, GPU, PODS, REFUSED, STATE, THREE, pod_in_n, state
from tests.webhook.pods import EXAMPLES
from webhook.admission import decide_object
from webhook.admission import review as reviewing

INVENTORY = ["--inventory", str(EXAMPLES / "fleet")]
ODD = pod_in_n({GPU: 1})
ODD["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
ASKED = {**PODS, "ephemeral": ODD}
NO = REFUSED | {"ephemeral"}


def run_on(obj, command, *options):
    """The result of a command about this object beside the template THREE."""
    return run(command, "-f", "-", *options, stdin=manifests.dump([THREE, obj]))


def claim_and_template(count, **selected):
    """A claim for whole GPUs, and a template with the same spec."""
    request = exactly("gpu.nvidia.com", name="g", count=count, **selected)
    return [claim("c", request, namespace="n"), claim_template("c", request, namespace="n")]


NONE_SUCH = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].productName == 'H9000'"}}]


@pytest.mark.parametrize(("asked", "code"), [(claim_and_template(2), ""), (claim_and_template(9), "[R023]"), (claim_and_template(1, selectors=NONE_SUCH), "[R022]")], ids=str)  # fmt: skip
def test_the_commands_refuse_the_claims_that_the_webhook_refuses(asked, code):
    for obj in asked:
        plural = f"{obj['kind'].lower()}s"
        report = answer(
            reviewing.decide_review(
                "validate", review(obj, resource=plural, group="resource.k8s.io", namespace="n"), STATE
            )
        )
        assert (code in report["status"]["message"]) if code else report["allowed"]
        for command in ("translate", "check"):
            result = run_on(obj, command, *INVENTORY, "-o", "json")
            assert result.exit_code == bool(code), result.output
            assert not code or code in result.output or code.strip("[]") in result.output
            assert run_on(obj, command, *INVENTORY, "--mode", "warn").exit_code == 0
        allocated = obj | {"status": {"allocation": {"devices": {"results": []}}}}
        assert not decide_object(allocated, STATE).refusals


def simulated(obj):
    result = run_on(obj, "simulate", "-f", str(EXAMPLES / "fleet"), "-o", "json")
    return {pod["pod"]: pod for pod in json.loads(result.stdout)["pods"]}


def test_simulate_refuses_what_the_webhook_refuses():
    (outcome,) = simulated(PODS["nine"]).values()
    assert outcome["summary"].startswith("refused: none of the 6 nodes can serve this pod, even with all devices free")
    assert "container main (nvidia.com/gpu: 9)" in outcome["summary"]


def test_a_workload_has_as_many_pods_as_replicas():
    spec = {"replicas": 3, "template": {"spec": PODS["one"]["spec"]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    by_name = simulated(deployment)
    assert list(by_name) == ["default/d-0", "default/d-1", "default/d-2"]
    assert len({device for outcome in by_name.values() for device in outcome["devices"]}) == 3
    read = {**deployment, "metadata": {"name": "d", "uid": "u"}}
    assert simulated(read) == {}, "its pods would be among the objects"


def mode_namespace(mode):
    return namespace("n", labels={"drawbridge.dev/mode": mode})


def declared(**fields):
    return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", **fields}


# The objects that set the mode; the mode that decisions have beside a potential outcome, if any; whether the webhook refuses anything.
MODES = {
    "off": ([mode_namespace("off")], "", False),
    "observed": ([mode_namespace("observe")], "observe", False),
    "warned": ([mode_namespace("warn")], "warn", False),
    "misspelt": ([mode_namespace("Enforce")], "warn", False),
    "observed by all": ([declared(mode="observe")], "observe", False),
    "no namespace's turn": ([declared(canary=0)], "warn", False),
    "enforced here": ([declared(mode="observe"), mode_namespace("enforce")], "", True),
    "nothing said": ([], "", True),
}
BY_SERVER = {"half", "differ", "requests only", "ephemeral"}


@pytest.mark.parametrize("source", MODES)
def test_the_mode_in_the_files_decides_about_refusals(source):
    """Outside of enforce a refused pod is admitted unchanged; the API server's refusals count in every mode. All pods are in one file."""
    files, mode, enforced = MODES[source]
    named = {name: {**obj, "metadata": {**obj["metadata"], "name": f"p{i}"}} for i, (name, obj) in enumerate(ASKED.items())}  # fmt: skip
    name_of = {f"Pod/n/{named_pod['metadata']['name']}": name for name, named_pod in named.items()}
    together = manifests.dump([*files, THREE, *named.values()])
    translated = run("translate", "-f", "-", *INVENTORY, "-o", "json", stdin=together)
    assert translated.exit_code == 1, translated.output
    answer = json.loads(translated.stdout)
    by_pod = {
        name: [decision for decision in answer["decisions"] if name_of.get(decision["object"]) == name]
        for name in ASKED
    }
    expected = NO if enforced else BY_SERVER
    assert {
        name for name, decisions in by_pod.items() if any(decision["outcome"] == "refused" for decision in decisions)
    } == expected
    for name, decisions in by_pod.items():
        if not enforced:
            assert named[name] in answer["items"], "nothing is changed"
            assert not any(
                decision["outcome"] in ("translated", "refused") for decision in decisions if "code" not in decision
            )
        if mode and name in NO - BY_SERVER - {"its own beside"}:
            assert any(decision.get("mode") == mode and decision["potentialOutcome"] for decision in decisions), (
                name,
                decisions,
            )
    checked = run("check", "-f", "-", *INVENTORY, "-o", "json", stdin=together)
    assert checked.exit_code == 1, checked.output
    findings = json.loads(checked.stdout)["findings"]
    errors = {finding["object"] for finding in findings if finding["severity"] == "error"}
    assert {name_of[error] for error in errors & name_of.keys()} == expected
    assert bool(errors - name_of.keys()) == (source == "misspelt"), "a policy keeps such a Namespace out"
    assert {finding["severity"] for finding in findings if finding["code"][0] == "R" and finding["code"] != "R001"} <= {
        "error" if enforced else "warning"
    }


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_outside_enforce_a_live_webhook_creates_no_claims(mode):
    fleet = [document.object for document in FLEET]
    async with playground([*fleet, THREE, mode_namespace(mode)], source_of("")) as here:
        for number, name in enumerate(("one", "nine", "half", "profile")):
            metadata = {**ASKED[name]["metadata"], "name": f"p{number}"}
            answer = await here.push({**ASKED[name], "metadata": metadata})
            assert bool(answer.refusal) == (name == "half"), answer.refusal
            assert answer.stored is None or "resourceClaims" not in answer.stored["spec"]


def test_simulate_translates_pods_in_the_given_mode():
    nine = [mode_namespace("observe"), THREE, ASKED["nine"]]
    result = run("simulate", "-f", str(EXAMPLES / "fleet"), "-f", "-", stdin=manifests.dump(nine))
    assert "refused: " not in result.output
    assert "passed over" not in result.output
    result = run("simulate", "-f", str(EXAMPLES / "fleet"), "-f", "-", "--mode", "enforce", stdin=manifests.dump(nine))
    assert "refused: " in result.output


def test_the_mode_option_applies_to_all_namespaces():
    for source in ("observed by all", "no namespace's turn", "enforced here"):  # the file, the canary, the Namespace
        files, _, _ = MODES[source]
        both = manifests.dump([*files, THREE, ASKED["nine"]])
        for command in ("translate", "check"):
            for mode, expected in (("enforce", 1), ("warn", 0), ("observe", 0), ("off", 0)):
                result = run(command, "-f", "-", *INVENTORY, "--mode", mode, stdin=both)
                assert result.exit_code == expected, result.output


def test_a_canary_covers_the_same_workloads_in_files():
    """A canary covers a workload by its name, which a pod has in its owner. The name of a CronJob's next Job is not known."""
    covered = set()
    for number in range(40):
        template = {"spec": PODS["one"]["spec"]}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"d{number}", "namespace": "n"},
            "spec": {"template": template},
        }
        owner = {"kind": "ReplicaSet", "name": f"d{number}-5d8f", "controller": True}
        labels = {"pod-template-hash": "5d8f"}
        made = pod_in_n({GPU: 1}, ownerReferences=[owner], labels=labels)
        world = state(canary=50)
        moves = decide_object(deployment, world).changed
        reviewed = reviewing.decide_review("mutate", review(made, namespace="n"), world)
        assert moves == (applied(made, reviewed) != made)
        covered.add(moves)
        cron = {
            **deployment,
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "spec": {"jobTemplate": {"spec": {"template": template}}},
        }
        assert decide_object(cron, world).changed
    assert covered == {True, False}


def test_every_command_reports_an_untranslated_pod_behind_a_fence(tmp_path):
    config = tmp_path / "config.yaml"
    bridge = {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"], "fence": True}
    config.write_text(manifests.dump([{"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": "enforce", "bridge": bridge}]))  # fmt: skip
    fleet = ["--config", str(config), "-f", str(EXAMPLES / "fleet")]
    known = ["--config", str(config), "--inventory", str(EXAMPLES / "fleet")]
    left = pod_in_n({GPU: 1})
    left["metadata"]["annotations"] = {"drawbridge.dev/extended-resources": "leave"}
    assert "D218" in run_on(left, "check", *known).output
    assert "[D218]" in run_on(left, "translate", *known, "-o", "report").output
    assert "      left main: nvidia.com/gpu" in run_on(left, "survey", *fleet, "-o", "wide").output
    for command in (("check", *known), ("survey", *fleet)):
        done = run_on(pod_in_n({GPU: 1}), *command).output
        assert "bridge.fence" not in done
    implicit = pod_in_n({"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1})
    assert "warning D218" in run_on(implicit, "check", *known).output
    survey = run_on(implicit, "survey", *fleet).output
    assert "a fence keeps the devices of gpu.nvidia.com from scheduler default-scheduler" in survey
    assert "0 served" not in survey
    assert ["left", "1"] in [line.split()[:2] for line in survey.splitlines()]
