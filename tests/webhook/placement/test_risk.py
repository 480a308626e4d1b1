"""A scheduler that does not know DeviceCompatibility may break a rule. The pod's creator gets a warning; no pod is refused."""

import msgspec
import pytest

from cluster import manifests
from dra.budget import Budget
from dra.objects import DeviceClass, DeviceCompatibility, ResourceSlice
from dra.stock import Stock
from dra.validation import read_object
from dra.wire import convert
from tests.allocator.search.test_node_scope import MODE, claims_for, stock_with
from tests.cli.running import MODES
from tests.dra.samples import compatibility, holding
from tests.objects import allocated, claim, device_class, exactly, node, pod, result, typed
from tests.webhook.admission.reviews import answer, review, state
from webhook.admission import review as admission
from webhook.placement.risk import find_broken_rule
from webhook.state import Configuration
from webhook.state.schema import DEFAULT, BridgeSettings

NODE = "gpu-node"


def documents(*names):
    return [document.object for name in names for document in manifests.read([MODES / f"{name}.yaml"])]


def claim_in_mode(mode, held_device=""):
    """Return a claim for one device of the class of a mode; `held_device` is allocated to it."""
    [example] = [read_object(document) for document in documents("claims") if document["metadata"]["name"] == mode]
    assert example.spec.devices.requests[0].exactly.device_class_name == mode
    status = allocated(result(held_device, pool=NODE, request="gpu")) if held_device else None
    return typed(claim(mode, exactly(mode, name="gpu"), namespace="ns", uid=mode, status=status))


def stock(*files, held_devices=()):
    """Return a stock (the objects that the allocator knows) of example files; `held_devices` has pairs of a mode and a device."""
    objects = documents("classes", *files)
    kinds = {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "DeviceCompatibility": DeviceCompatibility}
    objects_by_kind = {
        kind: [convert(obj, type_) for obj in objects if obj["kind"] == kind] for kind, type_ in kinds.items()
    }
    return Stock.of(
        nodes=[typed(node(NODE))],
        classes=objects_by_kind["DeviceClass"],
        slices=objects_by_kind["ResourceSlice"],
        compatibilities=objects_by_kind["DeviceCompatibility"],
        claims=[claim_in_mode(mode, device) for mode, device in held_devices],
    )


MIG = f'{MODE} == "mig"'
RISK_ACROSS_POOLS = "on n0 it may allocate full-0 together with mig-0 of pool p, which DeviceCompatibility/mig forbids"
HELD_MPS = [("mps", "gpu-0-mps-0")]
RISK = "on gpu-node it may allocate gpu-0-mig-0 together with gpu-0-mps-0, which DeviceCompatibility/gpu-mig forbids"


@pytest.mark.parametrize(
    ("files", "held_devices", "mode", "risk"),
    [
        (["plain", "expressions"], HELD_MPS, "mig", RISK),
        (["plain", "expressions"], HELD_MPS, "fractioning", ""),
        (["plain", "expressions"], [], "mig", ""),
        (["plain"], HELD_MPS, "mig", ""),
        (["groups"], HELD_MPS, "mig", ""),  # Kubernetes itself applies compatibility groups
        (["plain", "expressions"], HELD_MPS, "exclusive", ""),  # the shared counters exclude this allocation
    ],
)
def test_only_devices_that_the_rule_excludes_are_a_risk(files, held_devices, mode, risk):
    assert find_broken_rule(stock(*files, held_devices=held_devices), [claim_in_mode(mode)], Budget(1_000_000)) == risk


def test_a_class_with_some_excluded_devices_is_a_risk():
    """The rule leaves mig-0 free. A scheduler that does not know the rule takes the device that is published first."""
    both = typed(device_class("both", 'device.attributes["gpu.example.com"].mode in ["mig", "mps"]'))
    fleet = stock("plain", "expressions", held_devices=[("mig", "gpu-0-mig-1")]).with_object(both)
    risk = find_broken_rule(fleet, [typed(claim("c", exactly("both", name="gpu")))], Budget(1_000_000))
    assert risk.startswith("on gpu-node it may allocate gpu-0-mps-0 together with gpu-0-mig-1, ")


@pytest.mark.parametrize(("scope", "risk"), [("node", RISK_ACROSS_POOLS), ("pool", "")])
def test_only_a_node_scoped_rule_is_a_risk_across_pools(scope, risk):
    rule = compatibility("mig", MIG, MIG, scope=scope)
    fleet = stock_with(holding("theirs", "mig-0"), rules=[rule])
    assert find_broken_rule(fleet, claims_for("full"), Budget(1_000_000)) == risk


def world(bridge=None):
    file = msgspec.structs.replace(DEFAULT, mode="enforce", bridge=bridge and convert(bridge, BridgeSettings))
    stock_ = stock("plain", "expressions", held_devices=HELD_MPS).with_object(claim_in_mode("mig"))
    return msgspec.structs.replace(state(stock=stock_), configuration=Configuration(file))


def warnings(scheduler, bridge=None):
    item = pod("p", "mig", namespace="ns", **{"schedulerName": scheduler} if scheduler else {})
    outcome = admission.decide_review("mutate", review(item), world(bridge))
    assert answer(outcome)["allowed"]
    return answer(outcome).get("warnings", [])


BRIDGE = {"schedulerName": "drawbridge", "drivers": ["gpu.example.com"]}


def test_a_pod_of_another_scheduler_is_warned_of_risk():
    words = "scheduler default-scheduler does not know DeviceCompatibility"
    assert any(words in warning and RISK in warning for warning in warnings(""))
    assert any("scheduler volcano does not" in warning for warning in warnings("volcano", BRIDGE))
    assert not any("does not know" in warning for warning in warnings("drawbridge", BRIDGE))
