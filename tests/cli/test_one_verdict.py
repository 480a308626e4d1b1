"""One verdict everywhere: `translate`, `check`, `simulate` and the live gate say yes and no to the same pods."""

import json

import pytest
from click.testing import CliRunner

from cli.configuration import source_of
from cli.main import main
from cli.playground import playground
from cluster import manifests
from tests.webhook.admission.test_verdict import FLEET, GPU, PODS, REFUSED, THREE, pod
from tests.webhook.pods import EXAMPLES

INVENTORY = ["--inventory", str(EXAMPLES / "fleet")]
ODD = pod({GPU: 1})
ODD["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
ASKED = {**PODS, "ephemeral": ODD}
NO = REFUSED | {"ephemeral"}

LEFT = {"skipped", "two systems", "two hundred"}


def run(command, *more, of):
    text = manifests.dump([THREE, of])
    return CliRunner().invoke(main, [command, "-f", "-", *more], input=text)


@pytest.mark.parametrize("name", ASKED)
def test_the_commands_agree(name):
    expected = 1 if name in NO else 0
    translated = run("translate", *INVENTORY, "-o", "report", of=ASKED[name])
    assert translated.exit_code == expected, translated.output
    checked = run("check", *INVENTORY, of=ASKED[name])
    assert checked.exit_code == expected, checked.output
    if name in LEFT:
        return  # let in as it is, and there is no device plugin that would serve it
    simulated = run("simulate", "-f", str(EXAMPLES / "fleet"), of=ASKED[name])
    assert simulated.exit_code == expected, simulated.output


async def test_the_live_gate_agrees():
    fleet = [document.object for document in FLEET]
    told = {}
    async with playground([*fleet, THREE], source_of("")) as here:
        for number, (name, asked) in enumerate(ASKED.items()):
            metadata = {**asked["metadata"], "name": f"p{number}"}
            answer = await here.push({**asked, "metadata": metadata})
            told[name] = answer.refusal
    assert {name for name, refusal in told.items() if refusal} == NO, told
    assert "container main (nvidia.com/gpu: 9) asks for 9 devices" in told["nine"]
    assert "[R023]" in told["nine"]


def simulated(of):
    result = run("simulate", "-f", str(EXAMPLES / "fleet"), "-o", "json", of=of)
    return {one["pod"]: one for one in json.loads(result.stdout)["pods"]}


def test_simulate_says_what_the_gate_says():
    (one,) = simulated(PODS["nine"]).values()
    assert one["summary"].startswith("refused at the gate: none of 6 nodes could serve this pod even if idle")
    assert "container main (nvidia.com/gpu: 9)" in one["summary"]


def test_a_workload_makes_as_many_pods_as_it_says():
    spec = {"replicas": 3, "template": {"spec": PODS["one"]["spec"]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    found = simulated(deployment)
    assert list(found) == ["default/d-0", "default/d-1", "default/d-2"]
    assert len({device for one in found.values() for device in one["devices"]}) == 3
    read = {**deployment, "metadata": {"name": "d", "uid": "u"}}
    assert simulated(read) == {}, "its pods would be among the objects"
