"""A risk of a scheduler that knows no DeviceCompatibility is a warning for the pod's creator, and no pod is refused for it."""

import msgspec
import pytest

from cluster import manifests
from dra.budget import Budget
from dra.objects import DeviceClass, DeviceCompatibility, Node, ResourceClaim, ResourceSlice
from dra.stock import Stock
from dra.validation import read_object
from dra.wire import convert
from tests.allocator.search.test_node_scope import MODE, claims_for, stocked
from tests.cli.running import MODES
from tests.dra.samples import compatibility, holding
from tests.webhook.admission.test_decide import answer, review, state
from webhook.admission import review as admission
from webhook.admission.risk import find_broken_rule
from webhook.state import Configuration
from webhook.state.schema import DEFAULT, BridgeSettings

NODE = "gpu-node"


def documents(*names):
    return [one.object for name in names for one in manifests.read([MODES / f"{name}.yaml"])]


def claim_in_mode(mode, held=""):
    [found] = [read_object(document) for document in documents("claims") if document["metadata"]["name"] == mode]
    meta = {"name": mode, "namespace": "ns", "uid": mode}
    raw = {"metadata": meta, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": mode, "allocationMode": "ExactCount", "count": 1}}]}}}  # fmt: skip
    if held:
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": NODE, "device": held}
        raw["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert found.spec.devices.requests[0].exactly.device_class_name == mode
    return convert(raw, ResourceClaim)


def stock(*files, held=()):
    objects = documents("classes", *files)
    kinds = {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "DeviceCompatibility": DeviceCompatibility}
    of = {kind: [convert(obj, type_) for obj in objects if obj["kind"] == kind] for kind, type_ in kinds.items()}
    return Stock.of(
        nodes=[convert({"metadata": {"name": NODE}}, Node)],
        classes=of["DeviceClass"],
        slices=of["ResourceSlice"],
        compatibilities=of["DeviceCompatibility"],
        claims=[claim_in_mode(mode, device) for mode, device in held],
    )


MIG = f'{MODE} == "mig"'
ACROSS = "on n0 it may give full-0 beside mig-0 of pool p, against DeviceCompatibility/mig"
BESIDE_MPS = [("mps", "gpu-0-mps-0")]
SAID = "on gpu-node it may give gpu-0-mig-0 beside gpu-0-mps-0, against DeviceCompatibility/gpu-mig"


@pytest.mark.parametrize(
    ("files", "held", "mode", "said"),
    [
        (["plain", "expressions"], BESIDE_MPS, "mig", SAID),
        (["plain", "expressions"], BESIDE_MPS, "fractioning", ""),
        (["plain", "expressions"], [], "mig", ""),
        (["plain"], BESIDE_MPS, "mig", ""),
        (["groups"], BESIDE_MPS, "mig", ""),  # Kubernetes keeps groups apart by itself
        (["plain", "expressions"], BESIDE_MPS, "exclusive", ""),  # the counters keep every claim from that
    ],
)
def test_a_risk_is_what_the_rule_keeps_apart_and_nothing_else_does(files, held, mode, said):
    assert find_broken_rule(stock(*files, held=held), [claim_in_mode(mode)], Budget(1_000_000)) == said


def test_a_class_of_devices_of_which_some_are_left_is_a_risk_as_long_as_others_would_be_taken():
    """The rule leaves mig-0; a scheduler that does not know it begins with what is published first."""
    both = convert({"metadata": {"name": "both"}, "spec": {"selectors": [{"cel": {"expression": 'device.attributes["gpu.example.com"].mode in ["mig", "mps"]'}}]}}, DeviceClass)  # fmt: skip
    asked = convert({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "both", "allocationMode": "ExactCount", "count": 1}}]}}}, ResourceClaim)  # fmt: skip
    found = find_broken_rule(
        stock("plain", "expressions", held=[("mig", "gpu-0-mig-1")]).with_object(both), [asked], Budget(1_000_000)
    )
    assert found == "on gpu-node it may give gpu-0-mps-0 beside gpu-0-mig-1, against DeviceCompatibility/gpu-mig"


@pytest.mark.parametrize(("scope", "said"), [("node", ACROSS), ("pool", "")])
def test_a_rule_about_nodes_is_a_risk_across_pools(scope, said):
    rule = compatibility("mig", MIG, MIG, scope=scope)
    found = stocked(holding("theirs", "mig-0"), rules=[rule])
    assert find_broken_rule(found, claims_for("full"), Budget(1_000_000)) == said


def world(bridge=None):
    file = msgspec.structs.replace(DEFAULT, mode="enforce", bridge=bridge and convert(bridge, BridgeSettings))
    held = stock("plain", "expressions", held=BESIDE_MPS).with_object(claim_in_mode("mig"))
    return msgspec.structs.replace(state(stock=held), configuration=Configuration(file))


def warnings(scheduler, bridge=None):
    entry = {"name": "gpu", "resourceClaimName": "mig"}
    spec = {"containers": [{"name": "main"}], "resourceClaims": [entry]} | ({"schedulerName": scheduler} if scheduler else {})  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec}
    there = world(bridge)
    outcome = admission.mutate(review(pod), there)
    assert answer(outcome)["allowed"]
    return answer(outcome).get("warnings", [])


OURS = {"schedulerName": "drawbridge", "drivers": ["gpu.example.com"]}


def test_a_pod_of_another_scheduler_is_warned_of_risk():
    words = "scheduler default-scheduler does not know DeviceCompatibility"
    assert any(words in warning and SAID in warning for warning in warnings(""))
    assert any("scheduler volcano does not" in warning for warning in warnings("volcano", OURS))
    assert not any("does not know" in warning for warning in warnings("drawbridge", OURS))
