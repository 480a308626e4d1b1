"""Real manifests of every dialect: `translate`, `check` and the embedded cluster give the outcome that a manifest's first line expects.

A dialect is the table of the keys of one system. A target is a kind of device that claims request instead of a key.
"""

import asyncio
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from analysis.arrivals import created_pods
from analysis.loading import GeneratedNames
from cli.playground import Playground, playground
from cluster import resources
from docs.dialects import examples
from dra import validation
from tests.cli.dialect_examples import (
    CONFIGURATION,
    DIALECTS,
    DRIVERS,
    FILES,
    OPTIONAL_CONFIGURATION,
    OPTIONAL_FILES,
    Example,
    example,
    inventory,
)
from tests.cli.running import run
from tests.limits import PATIENCE
from tests.loops import every
from webhook.dialects import TARGETS
from webhook.service.configuration_file import Source

EXAMPLES = {example_read.name: example_read for example_read in map(example, (*FILES, *OPTIONAL_FILES))}
FILE_OPTIONS = {
    CONFIGURATION: [option for name in DIALECTS for option in ("-f", str(DRIVERS.parent / name))],
    OPTIONAL_CONFIGURATION: ["-f", str(OPTIONAL_CONFIGURATION.with_suffix(""))],
}


def first_pods(case: Example) -> list[dict]:
    """Return the first pod of each template of a manifest."""
    return [GeneratedNames().name(created.pod) for created in created_pods(case.object)]


def requested_keys(case: Example) -> set[str]:
    """Return the resources that the containers request, except those that every node has."""
    keys = set()
    for pod in first_pods(case):
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            keys |= {key for key in container.get("resources", {}).get("limits", {}) if "/" in key}
    return keys


@cache
def answer_of_translate(configuration: Path) -> dict:
    """Return the answer of `translate` about all examples with this configuration."""
    options = ["--inventory", str(DRIVERS), "--config", str(configuration), "-o", "json"]
    result = run("translate", *FILE_OPTIONS[configuration], *options)
    assert result.exit_code == 1, "no example was refused"
    return json.loads(result.stdout)


def decisions_on(case: Example) -> list[dict]:
    metadata = case.object["metadata"]
    name = f"{case.object['kind']}/{metadata['namespace']}/{metadata['name']}"
    return [decision for decision in answer_of_translate(case.configuration)["decisions"] if decision["object"] == name]


@cache
def findings(configuration: Path) -> list[dict]:
    """Return the findings of `check` about all examples with this configuration."""
    inventories = ["--inventory", str(DRIVERS), "--inventory", str(configuration)]
    result = run("check", *FILE_OPTIONS[configuration], *inventories, "-o", "json")
    return json.loads(result.stdout)["findings"]


def test_every_dialect_has_a_manifest_and_all_names_differ():
    assert {path.parent.name for path in FILES} == set(DIALECTS)
    names = Counter((case.object["kind"], case.object["metadata"]["namespace"], case.object["metadata"]["name"]) for case in EXAMPLES.values())  # fmt: skip
    assert max(names.values()) == 1


def test_every_example_comes_from_the_folder_of_its_dialect():
    """`make generate` writes these files, and deletes none."""
    paths = [path for name in ("drivers", *DIALECTS) for path in (DRIVERS.parent / name).iterdir()]
    assert {str(path.relative_to(DRIVERS.parent)) for path in paths} == examples().keys()


@every("name", EXAMPLES)
def test_translate_makes_the_expected_decision_for_every_key(name):
    expected = EXAMPLES[name]
    decisions = decisions_on(expected)
    outcomes = {decision["key"]: decision["outcome"] for decision in decisions}
    assert "unknown" not in outcomes.values()
    assert {decision["code"] for decision in decisions if decision["outcome"] == "refused"} == {expected.refused} - {""}
    if expected.refused:
        return
    assert requested_keys(expected) <= outcomes.keys()
    left = {key for key, outcome in outcomes.items() if outcome in ("left", "served")}
    assert expected.left <= left
    assert left & requested_keys(expected) == expected.left & requested_keys(expected)
    changed = {key for key, outcome in outcomes.items() if outcome in ("translated", "approximated")}
    assert bool(changed) == bool(expected.devices)


@every("name", EXAMPLES)
def test_check_reports_only_the_expected_errors(name):
    expected = EXAMPLES[name]
    codes = {
        finding["code"]
        for finding in findings(expected.configuration)
        if finding["place"]["file"] == str(expected.path) and finding["severity"] == "error"
    }
    assert codes == {expected.refused} - {""}


@pytest.mark.whole
@pytest.mark.parametrize("configuration", FILE_OPTIONS, ids=lambda path: path.stem)
async def test_each_pod_gets_the_expected_devices_or_is_refused(configuration):
    async with playground(inventory(), Source(str(configuration))) as cluster:
        for expected in EXAMPLES.values():
            if expected.configuration == configuration:
                await assert_expected_devices(cluster, expected)


async def assert_expected_devices(cluster: Playground, expected: Example) -> None:
    """Create the pods of a manifest one after another, and delete each with its claims, so that every pod finds all devices free."""
    devices_by_driver: Counter[str] = Counter()
    refusals = []
    for pod in first_pods(expected):
        answer = await cluster.push(pod)
        if answer.stored is None:
            refusals.append(answer.refusal)
            continue
        namespace, name = answer.stored["metadata"]["namespace"], answer.stored["metadata"]["name"]
        if "resourceClaims" in answer.stored["spec"]:
            assert await cluster.wait_for_pods([(namespace, name)], PATIENCE)
            placed_pod = await cluster.pod(namespace, name)
            assert placed_pod.spec.node_name, (expected.name, placed_pod.status.conditions)
            for claim in await cluster.claims(placed_pod):
                assert claim.status.allocation
                devices_by_driver.update(result.driver for result in claim.status.allocation.devices.results)
        await cluster.cluster.delete(resources.PODS, name, namespace)
        async with asyncio.timeout(PATIENCE):
            while (await cluster.cluster.list(resources.RESOURCE_CLAIMS)).items:  # noqa: ASYNC110  the store has no event for it
                await asyncio.sleep(0.01)
    assert dict(devices_by_driver) == expected.devices, expected.name
    assert [expected.refused in refusal for refusal in refusals] == ([True] if expected.refused else []), expected.name


@every("target", TARGETS.values())
def test_attributes_that_a_target_names_are_published_in_the_inventory(target):
    objects = inventory()
    assert set(target.classes) & {obj["metadata"]["name"] for obj in objects if obj["kind"] == "DeviceClass"}
    published: set[str] = set()
    for obj in objects:
        if obj["kind"] == "ResourceSlice" and obj["spec"]["driver"] == target.driver:
            published |= {name for device in obj["spec"]["devices"] for name in device["attributes"]}
    attributes_of_target = {name.removeprefix(f"{target.driver}/") for name in (target.unique, target.product, *target.where, *target.true) if name}  # fmt: skip
    attributes_of_target |= {target.profile} if target.profile not in ("profile", "") else set()
    assert attributes_of_target <= {name.removeprefix(f"{target.driver}/") for name in published}


def test_the_drivers_inventory_is_valid_for_the_api_server():
    for obj in inventory():
        if obj["kind"] != "Node":
            assert validation.errors(obj) == [], obj["metadata"]["name"]
