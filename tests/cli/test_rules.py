"""Every command gives the same answer with the examples of custom rules (manifests/examples/rules).

The rules of an example are a configuration with a dialect: the table of the keys of one system.
"""

import re

import pytest
import yaml

from cli.playground.playground import playground
from cli.playground.pod_progress import end_of
from cli.story import End
from cluster import manifests
from tests.cli.running import run, run_json
from tests.limits import PATIENCE
from tests.webhook.pods import EXAMPLES, exactly, pod, verdict_of
from webhook.dialects import plain
from webhook.service.configuration_file import Source

RULES = EXAMPLES / "rules"
EXAMPLE_NAMES = sorted(path.name for path in RULES.iterdir())
VGPU = "hami-core-gpu.project-hami.io"
# By example: its dialect, and the requests in the template of its pod.
EXPECTED_REQUESTS = {
    "amounts": ("slices", {"deviceClassName": VGPU, "count": 1, "capacity": {"requests": {"cores": "30", "memory": "12Gi"}}}),
    "words": ("sizes", {"deviceClassName": VGPU, "count": 1, "capacity": {"requests": {"cores": "25", "memory": "20Gi"}}}),
    "devices": ("npu", {"deviceClassName": "npu.example.com", "count": 2}),
    "subnets": ("subnets", *({"deviceClassName": name, "count": 1} for name in ("gpu.nvidia.com", "dranet"))),
    "pairs": ("rails", *({"deviceClassName": name, "count": 1} for name in ("gpu.nvidia.com", "dranet") * 2)),
}  # fmt: skip

# By example: the node and the devices that its pod gets.
EXPECTED_DEVICES = {
    "amounts": "share-1: hami-gpu-0 (30 cores, 12Gi memory)",
    "words": "share-1: hami-gpu-0 (25 cores, 20Gi memory)",
    "devices": "npu-2: npu-0, npu-2",
    "subnets": "vm-1: gpu-1, eth2",
    "pairs": "train-1: gpu-0, eth0, gpu-1, eth1",
}


def files_of(name):
    own_fleet = RULES / name / "fleet.yaml"
    return (
        RULES / name / "pod.yaml",
        RULES / name / "rules.yaml",
        own_fleet if own_fleet.exists() else EXAMPLES / "fleet",
    )


def test_every_example_is_run():
    assert set(EXAMPLE_NAMES) == set(EXPECTED_REQUESTS)


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_translate_makes_the_expected_requests_for_an_example(name):
    pod_file, rules, fleet = files_of(name)
    code, answer = run_json("translate", "-f", pod_file, "--config", rules, "--inventory", fleet)
    assert code == 0
    dialect, *expected_requests = EXPECTED_REQUESTS[name]
    assert {decision["dialect"] for decision in answer["decisions"]} == {dialect}
    template, translated_pod = answer["items"]
    requests = [request["exactly"] for request in template["spec"]["spec"]["devices"]["requests"]]
    assert [
        {key: request[key] for key in expected_request}
        for request, expected_request in zip(requests, expected_requests, strict=True)
    ] == expected_requests
    (container,) = translated_pod["spec"]["containers"]
    assert container["resources"] == {"claims": [{"name": translated_pod["spec"]["resourceClaims"][0]["name"]}]}


def test_annotations_and_node_selectors_become_device_selectors():
    for name, parts in (("words", ["a100", "h100"]), ("devices", ['.model.lowerAscii().contains("n2")', ".?healthy", '.?kind.orValue("") == "npu"'])):  # fmt: skip
        pod_file, rules, _ = files_of(name)
        _, answer = run_json("translate", "-f", pod_file, "--config", rules)
        (request,) = answer["items"][0]["spec"]["spec"]["devices"]["requests"]
        text = " ".join(selector["cel"]["expression"] for selector in request["exactly"]["selectors"])
        assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_without_its_rules_an_example_is_not_translated(name):
    pod_file, _, fleet = files_of(name)
    _, answer = run_json("translate", "-f", pod_file, "--inventory", fleet)
    assert len(answer["items"]) == 1
    assert {decision["outcome"] for decision in answer["decisions"]} <= {"unknown", "left"}


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_check_accepts_an_examples_rules_by_every_option(name):
    pod_file, rules, fleet = files_of(name)
    for options in (["--config", rules], ["-f", rules], ["--inventory", rules]):
        code, answer = run_json("check", "-f", pod_file, "--inventory", fleet, *options)
        assert (code, answer["findings"]) == (0, [])


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_survey_simulate_and_dialects_know_an_example(name):
    pod_file, rules, fleet = files_of(name)
    _, answer = run_json("survey", "-f", pod_file, "-f", fleet, "--config", rules)
    assert answer["outcomes"] == {"approximated" if name == "words" else "translated": 1}
    code, answer = run_json("simulate", "-f", pod_file, "-f", fleet, "--config", rules)
    assert code == 0
    assert answer["totals"]["placed"] == 1
    dialect = EXPECTED_REQUESTS[name][0]
    _, answer = run_json("dialects", dialect, "--config", rules)
    dialects = yaml.safe_load(rules.read_text())["dialects"]
    assert [row["name"] for row in answer["dialects"][0]["keys"]] == [row["name"] for row in dialects[0]["keys"]]


def test_a_printed_dialect_is_valid_in_a_configuration(tmp_path):
    for name in EXAMPLE_NAMES:
        _, rules, _ = files_of(name)
        dialect = EXPECTED_REQUESTS[name][0]
        printed = yaml.safe_load(run("dialects", dialect, "--config", rules, "-o", "yaml").stdout)
        config_file = tmp_path / f"{name}.yaml"
        config_file.write_text(yaml.safe_dump({**yaml.safe_load(rules.read_text()), **printed}))
        assert run("dialects", dialect, "--config", config_file).exit_code == 0


@pytest.mark.parametrize("command", ["translate", "check", "survey", "simulate"])
def test_commands_refuse_a_broken_rule_with_its_line(command, tmp_path):
    pod_file, rules, _ = files_of("amounts")
    lines = rules.read_text().splitlines()
    index = next(i for i, line in enumerate(lines) if line.strip() == "role: count")
    lines[index] = lines[index].replace("count", "cuont")
    broken = tmp_path / "rules.yaml"
    broken.write_text("\n".join(lines))
    result = run(command, "-f", pod_file, "--config", broken)
    assert result.exit_code == 2
    assert f"{broken}:{index + 1}:5: " in result.stderr
    assert "did you mean count?" in result.stderr


def test_broken_rules_in_the_inventory_are_refused(tmp_path):
    pod_file, rules, _ = files_of("amounts")
    broken = tmp_path / "rules.yaml"
    broken.write_text(rules.read_text().replace("target: vgpu", "target: vpgu"))
    result = run("check", "-f", pod_file, "--inventory", broken)
    assert result.exit_code == 2
    assert f"{broken}:10:3: unknown target 'vpgu' at /dialects/0/target" in result.stderr


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
async def test_the_webhook_and_the_embedded_cluster_serve_an_example(name):
    pod_file, rules, fleet = files_of(name)
    objects = [document.object for document in manifests.read([fleet])]
    (document,) = manifests.read([pod_file])
    async with playground(objects, Source(str(rules))) as cluster:
        progress = await end_of(cluster, document.object, PATIENCE)
    assert progress.end is End.PLACED, progress
    assert progress.runs == (EXPECTED_DEVICES[name],)


def test_a_refusal_names_the_published_values_of_a_boolean(tmp_path):
    pod_file, rules, fleet = files_of("devices")
    unhealthy = tmp_path / "fleet.yaml"
    unhealthy.write_text(fleet.read_text().replace("{bool: true}", "{bool: false}"))
    code, answer = run_json("translate", "-f", pod_file, "--config", rules, "--inventory", unhealthy)
    assert code == 1
    assert "published values of healthy: false" in answer["refusals"][0]


def test_the_first_example_of_the_page_of_keys_is_valid(tmp_path):
    page = (EXAMPLES.parents[1] / "docs" / "keys.md").read_text()
    text, *_ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    rules = tmp_path / "rules.yaml"
    rules.write_text(text)
    assert run("check", rules).exit_code == 0
    _, answer = run_json("dialects", "ours", "--config", rules)
    assert [row["name"] for row in answer["dialects"][0]["keys"]] == ["example.com/gpu"]


def test_the_page_lists_exactly_the_roles_of_a_dialect():
    page = (EXAMPLES.parents[1] / "docs" / "keys.md").read_text()
    table = page.partition("| role | allowed places | meaning |")[2].partition("\n\n")[0]
    roles_named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert roles_named == {role.value for roles in plain.ROLES.values() for role in roles}


def test_a_configured_key_may_request_pairs_of_devices():
    page = (EXAMPLES.parents[1] / "docs" / "keys.md").read_text()
    (line,) = re.findall(r"^ *(keys: .*)$", page, re.MULTILINE)
    verdict = verdict_of(pod({"example.com/gpu-and-rail": 2}), **yaml.safe_load(line))
    assert [request["class"] for request in exactly(verdict)] == ["gpu.nvidia.com", "dranet"] * 2
