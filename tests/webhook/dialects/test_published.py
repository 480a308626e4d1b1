"""ResourceSlices and DeviceClasses in the examples and in e2e equal those of drivers and their charts (`published.yaml` of each dialect)."""

import re
from typing import Any

import pytest

from cluster import manifests
from docs.dialects import DRIVERS
from e2e.actors import fleet
from tests.loops import every
from tests.webhook.pods import EXAMPLES
from webhook.dialects import TARGETS

INVENTORIES = ("drivers", "fleet", "rules/devices", "partitions/nvidia-dynamic-mig.yaml")
_WORD = re.compile(r"(?P<name>[^:=?+]+)(:(?P<type>\w+))?(=(?P<value>\S+?))?(?P<policy>\+)?(?P<optional>\?)?")


def words(text: str) -> dict[str, re.Match[str]]:
    """Return what a text of published.yaml says about each attribute or capacity, by name. `docs.dialects` explains the notation."""
    matches = [_WORD.fullmatch(word) for word in text.split()]
    return {match["name"]: match for match in matches if match}


def differences(driver: str, device: dict[str, Any], kind: dict[str, Any]) -> list[str]:
    """Return how a device differs from the devices of one kind that a driver publishes."""
    attributes = {key.removeprefix(f"{driver}/"): value for key, value in device.get("attributes", {}).items()}
    expected = {key.removeprefix(f"{driver}/"): word for key, word in words(kind["attributes"]).items()}
    amounts, capacities = device.get("capacity", {}), words(kind.get("capacity", ""))
    amounts = {key.removeprefix(f"{driver}/"): value for key, value in amounts.items()}
    capacities = {key.removeprefix(f"{driver}/"): word for key, word in capacities.items()}
    problems = [
        f"lacks {key}"
        for key, word in (expected | capacities).items()
        if not word["optional"] and key not in attributes | amounts
    ]
    problems += [f"has {key}" for key in attributes if key not in expected]
    problems += [f"has capacity {key}" for key in amounts if key not in capacities]
    for key in attributes.keys() & expected.keys():
        [(value_type, value)] = attributes[key].items()
        if value_type != (expected[key]["type"] or "string"):
            problems.append(f"{key} is a {value_type}")
        elif expected[key]["value"] not in {None, value}:
            problems.append(f"{key} is {value}")
    problems += [
        f"{key}: request policy" for key in amounts.keys() & capacities.keys()
        if bool(amounts[key].get("requestPolicy")) != bool(capacities[key]["policy"])
    ]  # fmt: skip
    if bool(device.get("allowMultipleAllocations")) != kind.get("shared", False):
        problems.append("allowMultipleAllocations")
    return problems


def unpublished(objects: list[dict[str, Any]]) -> list[str]:
    """Return how devices in these objects differ from the devices that their drivers publish."""
    problems = []
    for obj in objects:
        if obj["kind"] == "ResourceSlice" and (facts := DRIVERS.get(obj["spec"]["driver"])):
            driver = obj["spec"]["driver"]
            for device in obj["spec"].get("devices", ()):
                nearest = min((differences(driver, device, kind) for kind in facts["devices"]), key=len)
                problems += [f"{driver} {device['name']}: {', '.join(nearest)}"] if nearest else []
    return problems


@pytest.mark.parametrize("name", INVENTORIES)
def test_devices_of_examples_are_those_that_drivers_publish(name):
    assert unpublished([document.object for document in manifests.read([EXAMPLES / name])]) == []


def test_slices_and_classes_of_e2e_are_those_of_their_drivers():
    devices = {
        fleet.NVIDIA: [*fleet.whole_gpus(2), *fleet.static_mig(0, ["3g.20gb", "1g.5gb"])],
        fleet.HAMI: fleet.hami_gpus(1),
        fleet.DRANET: [*fleet.dranet_nics(1), *fleet.dranet_nics(1, rdma=False)],
    }
    assert (
        unpublished(
            [
                slice_
                for driver, driver_devices in devices.items()
                for slice_ in fleet.slices(driver, "n", driver_devices)
            ]
        )
        == []
    )


def test_published_facts_include_the_driver_of_every_target():
    assert {target.driver for target in TARGETS.values()} - set(DRIVERS) == set()


@every("driver", DRIVERS)
def test_the_example_of_a_driver_has_its_charts_classes(driver):
    objects = [document.object for document in manifests.read([EXAMPLES / "drivers" / f"{driver}.yaml"])]
    classes = {
        obj["metadata"]["name"]: obj["spec"].get("extendedResourceName", "")
        for obj in objects
        if obj["kind"] == "DeviceClass"
    }
    expected_classes = {
        name: "" if extended.endswith("?") else extended for name, extended in DRIVERS[driver]["classes"].items()
    }
    assert classes == expected_classes


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda device: device["attributes"].pop("uuid"), "lacks uuid"),
        (lambda device: device["attributes"].update(index={"int": 0}), "has index"),
        (lambda device: device["attributes"].update(driverVersion={"string": "580"}), "driverVersion is a string"),
        (lambda device: device["attributes"].update(type={"string": "GPU"}), "type is GPU"),
        (lambda device: device["capacity"].update(cores={"value": "1"}), "has capacity cores"),
        (lambda device: device.update(allowMultipleAllocations=True), "allowMultipleAllocations"),
    ],
)
def test_a_device_that_no_driver_publishes_is_reported(change, problem):
    (device,) = fleet.whole_gpus(1)
    change(device)
    problems = unpublished(fleet.slices(fleet.NVIDIA, "n", [device]))
    assert len(problems) == 1
    assert problem in problems[0]


@every("driver", DRIVERS)
def test_the_published_facts_name_their_source(driver):
    assert re.match(r"[\w-]+/[\w-]+ [0-9a-f]{7}\b|the driver's documentation ", DRIVERS[driver]["readIn"])
