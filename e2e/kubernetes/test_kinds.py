"""Our own kinds on a real API server: what their CRDs refuse without our processes, and with which messages."""

import json

import pytest

from cluster import manifests
from dra.validation import problems
from dra.validation.fields import gates
from e2e.actors.bridge import kinds
from e2e.actors.workloads import compatibility
from tests.dra.policy import quota_samples

pytestmark = pytest.mark.real
DRIVER = "gpu.example.com"
TOO_LONG = "a" * 10241


@pytest.fixture(scope="module")
def served(control_plane):
    """A control plane with our kinds as they are in the manifests."""
    missing = [kind for kind in kinds() if control_plane.read(kind) is None]
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=manifests.dump(kinds()))
    names = [kind["metadata"]["name"] for kind in kinds()]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
    yield control_plane
    control_plane.remove(*missing)
    # A CRD is deleted after its objects; an object that is created meanwhile is lost.
    control_plane.until("they are gone", lambda: not any(map(control_plane.read, missing)))


def quota(namespace, **hard):
    limits = {key.replace("__", "/"): amount for key, amount in hard.items()}
    meta = {"name": "tried", "namespace": namespace}
    return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": meta, "spec": {"hard": limits}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"driver": DRIVER, "compatibleOnlyWith": "true"}, ""),
        ({"driver": "GPU.example.com", "compatibleOnlyWith": "true", "scope": "counterSet"}, ""),
        ({"driver": DRIVER, "compatibleOnlyWith": "true", "scope": "node"}, ""),
        ({"driver": DRIVER, "groups": "proposal"}, ""),
        ({"driver": DRIVER, "selector": "", "compatibleOnlyWith": "a" * 10240}, ""),
        ({"driver": DRIVER}, "this object does nothing"),
        ({"driver": DRIVER, "selector": "true", "compatibleOnlyWith": ""}, "this object does nothing"),
        ({"driver": DRIVER, "selector": " \n", "compatibleOnlyWith": "true"}, "is blank"),
        ({"driver": DRIVER, "compatibleOnlyWith": " "}, "is blank"),
        ({"driver": DRIVER, "compatibleOnlyWith": "true", "scope": "card"}, 'Unsupported value: "card"'),
        ({"driver": DRIVER, "compatibleOnlyWith": "true", "groups": "mine"}, 'Unsupported value: "mine"'),
        ({"driver": "gpu_example", "compatibleOnlyWith": "true"}, "'gpu_example' is not the name of a driver"),
        ({"driver": f"{'a' * 60}.com", "compatibleOnlyWith": "true"}, "Too long"),
        ({"driver": DRIVER, "compatibleOnlyWith": TOO_LONG}, "Too long"),
        ({"compatibleOnlyWith": "true"}, "spec.driver: Required value"),
    ],
)
def test_an_invalid_rule_is_refused_by_the_crd(served, spec, words):
    why = served.refusal(compatibility("tried", **spec))
    assert words in why
    assert bool(words) == bool(why)


@pytest.mark.parametrize(
    ("hard", "words"),
    [
        ({"gpu/devices": 2, "gpu/memory": "80Gi", "gpu/cores": "1500m"}, ""),
        ({}, "should have at least 1 properties"),
        ({"gpu/devices": -1}, "greater than or equal to 0"),
        ({"gpu/memory": "-1Gi"}, "should match"),
        ({"gpu/memory": "80 GB"}, "should match"),
        ({"gpu/memory": f"0.{'0' * 70}1"}, "Too long"),
        ({f"gpu-{at}/devices": 1 for at in range(65)}, "must have at most 64"),
    ],
)
def test_an_invalid_quota_is_refused_by_the_crd(served, namespace, hard, words):
    why = served.refusal(quota(namespace, **hard))
    assert words in why
    assert bool(words) == bool(why)


def test_the_crd_refuses_the_quotas_that_check_refuses(served, namespace):
    """Keys, amounts, scopes and the number of lines; each quota is created in a dry run."""
    wrong = []
    for case, good in quota_samples.cases():
        value = json.loads(json.dumps(case)) | {"metadata": {"name": "tried", "namespace": namespace}}
        why = served.refusal(value)
        errors = [problem for problem in problems(value, gates.DEFAULT) if problem.refuses]
        if bool(why) == good or bool(errors) == good:
            wrong.append((value["spec"], good, why, errors))
    assert wrong == []


def test_rule_status_is_a_subresource_that_kubectl_shows(served):
    served.create(compatibility("tried", driver=DRIVER, compatibleOnlyWith="false") | {"status": {"devices": 9}})
    try:
        rule = served.path_of(compatibility("tried"))
        assert "status" not in served.get(rule)
        finding = {"code": "D503", "path": "/spec/driver", "message": "no published device"}
        served.patch(
            f"{rule}/status", {"spec": {"scope": "counterSet"}, "status": {"devices": 7, "findings": [finding]}}
        )
        assert served.get(rule)["spec"]["scope"] == "pool"
        header, row = served.kubectl("get", "devcompat", "tried").stdout.splitlines()
        shown = dict(zip(header.split(), row.split(), strict=True))
        assert (shown["DEVICES"], shown["FINDINGS"]) == ("7", "D503")
    finally:
        served.remove(compatibility("tried"))
