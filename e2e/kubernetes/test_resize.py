"""`drawbridge resize` on the real API server: a claim cannot be resized, and the printed objects are applied unchanged."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import COMMAND
from e2e.actors.workloads import container, pod, request, template, using_template
from e2e.kubernetes.test_kinds import quota, served  # noqa: F401  the kinds, as they are in the manifests
from e2e.kubernetes.test_survey import account

pytestmark = pytest.mark.real
ROLE = Path(__file__).parents[2] / "manifests" / "explain" / "role.yaml"
CLASS = "e2e-resize"
DRIVER = "resize.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


def amounts(control_plane, namespace):
    """Return the memory that each allocated claim consumes."""
    claims = control_plane.get(CLAIMS.format(namespace))["items"]
    results = [claim["status"]["allocation"]["devices"]["results"][0] for claim in claims if claim.get("status", {}).get("allocation")]  # fmt: skip
    return sorted(result["consumedCapacity"]["memory"] for result in results)


@pytest.fixture
def serving(served, namespace, created):  # noqa: F811  a fixture
    """A Deployment of two pods with 4Gi each of one device of 20Gi, under a quota of 14Gi.

    kube-scheduler may count a share twice while it binds the share's pod, so there is room for three shares of 6Gi.
    """
    [node] = served.add_fake_nodes(1, prefix="resize-")
    capacity = {"memory": fleet.shared("20Gi", minimum="1Gi", step="1Gi", default="20Gi")}
    created(*fleet.slices(DRIVER, node, [fleet.device("card", {}, capacity, allowMultipleAllocations=True)]))
    created(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), quota(namespace, **{f"{CLASS}/memory": "14Gi"}))
    created(template("share", namespace, request("gpu", CLASS, capacity={"requests": {"memory": "4Gi"}})))
    using_it = container(resources={"claims": [{"name": "share"}]})
    spec = pod("p", namespace, using_it, node=node, resourceClaims=[using_template("share")])["spec"]
    spec |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0}  # no kubelet ends them
    labels = {"app": "serve"}
    created(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": namespace},
            "spec": {
                "replicas": 2,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    served.until("both have a share", lambda: amounts(served, namespace) == ["4Gi", "4Gi"], 60)
    yield namespace
    served.delete(f"/api/v1/nodes/{node}")


def resize(kubeconfig, namespace, amount):
    words = (
        "resize",
        "deployment/serve",
        f"memory={amount}",
        "-n",
        namespace,
        "--kubeconfig",
        str(kubeconfig),
        "-o",
        "json",
    )
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_a_claim_keeps_its_share_and_printed_objects_change_it(control_plane, serving, created):
    [claim, _] = control_plane.get(CLAIMS.format(serving))["items"]
    claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"] = "6Gi"
    with pytest.raises(ApiError, match="field is immutable"):
        control_plane.patch(f"{CLAIMS.format(serving)}/{claim['metadata']['name']}", {"spec": claim["spec"]})
    path = f"/apis/resource.k8s.io/v1/namespaces/{serving}/resourceclaimtemplates"
    with pytest.raises(ApiError, match="field is immutable"):
        control_plane.patch(f"{path}/share", {"spec": {"spec": claim["spec"]}})

    looker = account(control_plane, serving, created, yaml.safe_load(ROLE.read_text()))
    code, answer = resize(looker, serving, "8Gi")
    assert (code, answer["fits"], [bool(pod["node"]) for pod in answer["pods"]]) == (1, False, [True, False])
    [line] = answer["quotas"]
    assert (line["requested"], line["used"], line["replicasLeft"]) == ("16Gi", "0", "1")

    code, answer = resize(looker, serving, "6Gi")
    assert (code, answer["fits"], answer["unread"]) == (0, True, [])
    assert amounts(control_plane, serving) == ["4Gi", "4Gi"], "nothing was written"
    made, workload = answer["objects"]
    created(made)
    control_plane.patch(f"/apis/apps/v1/namespaces/{serving}/deployments/serve", {"spec": workload["spec"]})
    control_plane.until("both have the new share", lambda: amounts(control_plane, serving) == ["6Gi", "6Gi"], 90)
