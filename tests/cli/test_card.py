"""The commands serve the device of a real H200 as its driver publishes it (card.yaml), and the examples agree with card.yaml."""

from pathlib import Path

import pytest
import yaml

from cluster import manifests
from e2e.actors.workloads import container, limits, pod, request, template, using_template
from tests.cli.running import manifest, run
from tests.webhook.dialects.test_published import unpublished
from tests.webhook.pods import EXAMPLES

CARD = Path(__file__).with_name("card.yaml")
NODE, SLICE = (document.object for document in manifests.read([CARD]))
[DEVICE] = SLICE["spec"]["devices"]
CLASSES = [
    document.object
    for document in manifests.read([EXAMPLES / "drivers/gpu.nvidia.com.yaml"])
    if document.object["kind"] == "DeviceClass"
]
MEMORY_OF_AT_LEAST = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{}')) >= 0"
ATTRIBUTES = "device.attributes['gpu.nvidia.com']"


def requesting_pod(name, count):
    return pod(name, "default", container(**limits(**{"nvidia.com/gpu": count})))


def template_and_pod(*expressions):
    """Return a claim template with these CEL expressions, and a pod that uses the template."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    claiming_container = container(resources={"claims": [{"name": "t"}]})
    return (
        template("t", "default", request("gpu", "gpu.nvidia.com", selectors=selectors)),
        pod("p", "default", claiming_container, resourceClaims=[using_template("t")]),
    )


def simulate_on_card(folder, *objects):
    return run("simulate", "-f", CARD, "-f", manifest(folder / "objects.json", *CLASSES, *objects))


def test_the_card_has_only_fields_that_its_driver_publishes():
    assert unpublished([SLICE]) == []


def test_the_configuration_example_has_the_cards_product_and_memory():
    """The 141 GB of the product name are less than 141Gi: no H200 could serve a claim for 141Gi."""
    configuration = yaml.safe_load((EXAMPLES / "configuration.yaml").read_text())
    [model] = configuration["models"]
    [node] = configuration["nodeTemplates"]
    [devices] = node["devices"]
    product, capacity = DEVICE["attributes"]["productName"], DEVICE["capacity"]
    assert (model["product"], model["memory"]) == (product["string"], capacity["memory"]["value"])
    assert (devices["attributes"]["productName"], devices["capacity"]) == (product, capacity)


def test_the_first_pod_gets_the_card_and_the_second_waits(tmp_path):
    result = simulate_on_card(tmp_path, requesting_pod("p", 1), requesting_pod("q", 1))
    assert result.exit_code == 1
    assert "1 of 2 pods placed" in result.stdout
    assert "1 of 1 devices are in use" in result.stdout


def test_a_request_for_two_cards_is_refused(tmp_path):
    objects = manifest(tmp_path / "objects.json", *CLASSES, requesting_pod("p", 2))
    text = run("check", "-f", CARD, "-f", objects).output
    assert "2 devices of class gpu.nvidia.com" in text


@pytest.mark.parametrize(
    ("expressions", "fits"),
    [
        ([f"{ATTRIBUTES}.productName == 'NVIDIA H200'", MEMORY_OF_AT_LEAST.format("143771Mi")], True),
        ([f"{ATTRIBUTES}.cudaComputeCapability.isGreaterThan(semver('8.9.0'))"], True),
        ([f"{ATTRIBUTES}.driverVersion.compareTo(semver('580.159.4')) == 0"], True),
        ([MEMORY_OF_AT_LEAST.format("141Gi")], False),
    ],
    ids=["product and memory", "compute capability", "driver version", "more memory than the card has"],
)
def test_a_claim_fits_only_if_the_card_matches_its_expressions(tmp_path, expressions, fits):
    result = simulate_on_card(tmp_path, *template_and_pod(*expressions))
    assert ("1 of 1 pod placed" in result.stdout) == fits
    assert result.exit_code == (0 if fits else 1)
