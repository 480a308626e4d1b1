"""`drawbridge check` reports claims for which kube-scheduler may violate a DeviceCompatibility, given the devices in use."""

import pytest

from tests.cli.running import manifest, modes, run_json
from tests.objects import allocated, claim, exactly, result


def inventory_with_holder(tmp_path, device):
    """The options for an inventory in which a claim holds this device."""
    held = allocated(result(device, pool="gpu-node", request="gpu"))
    holder = claim("holder", exactly("mps", name="gpu"), status=held)
    return ["--inventory", manifest(tmp_path / "held.yaml", holder)]


@pytest.mark.parametrize(
    ("files", "held_device", "reported_claims"),
    [
        (["plain", "expressions"], "gpu-0-mps-0", ["ResourceClaim/default/mig", "ResourceClaim/default/mig-too"]),
        (["plain"], "gpu-0-mps-0", []),
        (["groups"], "gpu-0-mps-0", []),
        (["plain", "expressions"], "", []),
    ],
)
def test_only_a_claim_that_may_violate_rules_is_reported(tmp_path, files, held_device, reported_claims):
    inventory_options = inventory_with_holder(tmp_path, held_device) if held_device else []
    _, answer = run_json("check", *modes("classes", "claims", *files), *inventory_options)
    findings = [finding for finding in answer["findings"] if finding["code"] == "D507"]
    assert [finding["object"] for finding in findings] == reported_claims
    for finding in findings:
        assert (
            "it may allocate gpu-0-mig-0 together with gpu-0-mps-0, which DeviceCompatibility/gpu-mig forbids"
            in finding["message"]
        )
