"""What a real card is published as (card.yaml): commands serve it, and examples agree with it."""

from pathlib import Path

import pytest
import yaml

from cluster import manifests
from e2e.actors.workloads import container, limits, pod, request, template, using_template
from tests.cli.running import manifest, run
from tests.webhook.dialects.test_published import published
from tests.webhook.pods import EXAMPLES

CARD = Path(__file__).with_name("card.yaml")
NODE, SLICE = (document.object for document in manifests.read([CARD]))
[DEVICE] = SLICE["spec"]["devices"]
CLASSES = [
    document.object
    for document in manifests.read([EXAMPLES / "drivers/gpu.nvidia.com.yaml"])
    if document.object["kind"] == "DeviceClass"
]
SIZE = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{}')) >= 0"
SAYS = "device.attributes['gpu.nvidia.com']"


def plain(name, count):
    return pod(name, "default", container(**limits(**{"nvidia.com/gpu": count})))


def claiming(*expressions):
    """A pod and its template, which selects by expressions."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    asks = container(resources={"claims": [{"name": "t"}]})
    return (
        template("t", "default", request("gpu", "gpu.nvidia.com", selectors=selectors)),
        pod("p", "default", asks, resourceClaims=[using_template("t")]),
    )


def simulated(folder, *objects):
    return run("simulate", "-f", CARD, "-f", manifest(folder / "objects.json", *CLASSES, *objects))


def test_the_device_has_the_shape_that_our_examples_have():
    assert published([SLICE]) == []


def test_the_example_of_a_configuration_has_the_memory_that_the_driver_publishes():
    """The 141 GB of the product's name are less than 141Gi: a claim for so much would fit no H200."""
    configuration = yaml.safe_load((EXAMPLES / "configuration.yaml").read_text())
    [model] = configuration["models"]
    [node] = configuration["nodeTemplates"]
    [devices] = node["devices"]
    product, capacity = DEVICE["attributes"]["productName"], DEVICE["capacity"]
    assert (model["product"], model["memory"]) == (product["string"], capacity["memory"]["value"])
    assert (devices["attributes"]["productName"], devices["capacity"]) == (product, capacity)


def test_one_pod_gets_the_card_and_the_next_one_waits(tmp_path):
    result = simulated(tmp_path, plain("p", 1), plain("q", 1))
    assert result.exit_code == 1
    assert "1 of 2 pods placed" in result.stdout
    assert "1 of 1 devices are in use" in result.stdout


def test_two_cards_are_refused(tmp_path):
    objects = manifest(tmp_path / "objects.json", *CLASSES, plain("p", 2))
    text = run("check", "-f", CARD, "-f", objects).output
    assert "2 devices of class gpu.nvidia.com" in text


@pytest.mark.parametrize(
    ("expressions", "fits"),
    [
        ([f"{SAYS}.productName == 'NVIDIA H200'", SIZE.format("143771Mi")], True),
        ([f"{SAYS}.cudaComputeCapability.isGreaterThan(semver('8.9.0'))"], True),
        ([f"{SAYS}.driverVersion.compareTo(semver('580.159.4')) == 0"], True),
        ([SIZE.format("141Gi")], False),
    ],
)
def test_claims_select_the_card_by_what_is_published(tmp_path, expressions, fits):
    result = simulated(tmp_path, *claiming(*expressions))
    assert ("1 of 1 pod placed" in result.stdout) == fits
    assert result.exit_code == (0 if fits else 1)
