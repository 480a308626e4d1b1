"""The commands refuse the claims that the webhook refuses."""

import pytest

from cluster import manifests
from tests.cli.running import run
from tests.objects import claim, claim_template, exactly
from tests.webhook.admission.test_decide import answer, review
from tests.webhook.admission.test_verdict import STATE
from tests.webhook.pods import EXAMPLES
from webhook.admission import decide_object
from webhook.admission import review as reviewing

INVENTORY = ["--inventory", str(EXAMPLES / "fleet")]


def run_on(obj, command, *options):
    return run(command, "-f", "-", *INVENTORY, *options, stdin=manifests.dump([obj]))


def claim_and_template(count, **fields):
    """Return a claim for whole GPUs, and a claim template with the same spec."""
    request = exactly("gpu.nvidia.com", name="g", count=count, **fields)
    return [claim("c", request, namespace="n"), claim_template("c", request, namespace="n")]


UNKNOWN_PRODUCT = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].productName == 'H9000'"}}]


@pytest.mark.parametrize(("objects", "code"), [(claim_and_template(2), ""), (claim_and_template(9), "[R023]"), (claim_and_template(1, selectors=UNKNOWN_PRODUCT), "[R022]")], ids=["2 GPUs", "more GPUs than a node has", "a GPU of an unknown product"])  # fmt: skip
def test_the_commands_refuse_the_claims_that_the_webhook_refuses(objects, code):
    for obj in objects:
        plural = f"{obj['kind'].lower()}s"
        response = answer(
            reviewing.decide_review(
                "validate", review(obj, resource=plural, group="resource.k8s.io", namespace="n"), STATE
            )
        )
        assert (code in response["status"]["message"]) if code else response["allowed"]
        for command in ("translate", "check"):
            result = run_on(obj, command, "-o", "json")
            assert result.exit_code == bool(code), result.output
            assert not code or code in result.output or code.strip("[]") in result.output
            assert run_on(obj, command, "--mode", "warn").exit_code == 0
        allocated = obj | {"status": {"allocation": {"devices": {"results": []}}}}
        assert not decide_object(allocated, STATE).refusals
