"""An inventory only adds findings: a finding that depends on no device remains."""

import json
from pathlib import Path

import pytest

from cluster import manifests
from tests.cli.dialect_examples import DIALECTS
from tests.cli.running import manifest, run, run_json

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
POD_FOLDERS = ("pods", *DIALECTS)
INVENTORIES = sorted((*EXAMPLES.glob("inventories/*.yaml"), EXAMPLES / "fleet", EXAMPLES / "drivers"))
# The first characters of codes about keys, amounts and fields, and about rules of legacy systems. These findings depend on no device.
CODES_WITHOUT_DEVICES = ("D0", "D1", "D211", "D213", "D214", "D215", "R001", "R002", "R004", "C0")


def objects_of(*paths):
    return [document.object for document in manifests.read(paths)]


def test_check_knows_the_kinds_of_the_examples():
    result = run("check", EXAMPLES / "inventories", EXAMPLES / "drivers")
    assert (result.exit_code, "D004" in result.stdout) == (0, False), result.stdout  # D004: an unknown kind


def test_a_misspelt_device_inventory_is_reported(tmp_path):
    text = (EXAMPLES / "inventories" / "hgx-h100.yaml").read_text()
    (tmp_path / "inventory.yaml").write_text(text.replace("DeviceInventory", "DeviceInventori"))
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "DeviceInventory" in result.stdout


def mistyped_copies(pod):
    """Yield copies of the pod. In each copy one amount is malformed, or a misspelt key stands beside a key."""
    for key in sorted(keys_of(pod)):
        for name, replacement in (
            ("amount", (f'"{key}": ', f'"{key}": 0.5, "x": ')),
            ("typo", (f'"{key}": ', f'"{key}n": 1, "{key}": ')),
        ):
            copy = json.loads(json.dumps(pod).replace(*replacement))
            metadata = copy["metadata"]
            metadata["name"] = f"{metadata.get('name', 'p')}-{name}-{key.partition('/')[2]}".lower()
            yield copy


def keys_of(pod):
    containers = pod.get("spec", {}).get("containers", [])
    return {key for container in containers for key in container.get("resources", {}).get("limits", {}) if "/" in key}


@pytest.fixture(scope="module")
def workloads(tmp_path_factory):
    """A file with the pods and workloads of the examples, and with their mistyped copies."""
    objects = objects_of(*(EXAMPLES / folder for folder in POD_FOLDERS))
    copies = [changed for pod in objects for changed in mistyped_copies(pod)]
    assert len(copies) > 50
    return manifest(tmp_path_factory.mktemp("workloads") / "pods.yaml", *objects, *copies)


def findings_without_devices(workloads, *arguments):
    _, answer = run_json("check", "-f", workloads, *arguments, "--mode", "enforce")
    return {
        (finding["code"], finding["object"], finding["path"], finding["message"])
        for finding in answer["findings"]
        if finding["code"].startswith(CODES_WITHOUT_DEVICES)
    }


@pytest.mark.whole
@pytest.mark.parametrize("inventory", INVENTORIES, ids=lambda path: path.stem)
def test_findings_that_depend_on_no_device_remain_with_any_inventory(workloads, inventory):
    without_inventory = findings_without_devices(workloads)
    names = [str(obj["metadata"].get("name")) for obj in objects_of(workloads)]
    typos = {name for code, name, path, _ in without_inventory if code == "D211" and path.endswith("~1gpun")}
    assert len(typos) == len({name for name in names if name.endswith("-typo-gpu")}) > 5
    assert sorted(without_inventory - findings_without_devices(workloads, "--inventory", inventory)) == []
