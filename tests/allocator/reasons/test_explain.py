"""The reasons why a node cannot serve a claim, and the order of nodes in reports."""

import pytest
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import Cause, NodeAnswer, Rejection, SearchVerdict, Stage
from allocator.reasons import explain
from dra.objects import EXTENDED_CLAIM, ResourceClaimConsumerReference
from dra.objects.taint import DeviceTaintRule
from dra.server import server_of
from dra.stock import Stock
from dra.wire import convert
from tests.allocator.fleets import claim, fleet, gpu, partitions, shared, taken
from tests.objects import exactly

ROOT = "resource.kubernetes.io/pcieRoot"


def refusal_at(stage, rejected_count=1, total_count=1, request="r"):
    return NodeAnswer(
        SearchVerdict.INFEASIBLE, reasons=(Rejection(stage, "default/a", request, rejected_count, total_count),)
    )


def reasons_by_stage(stock, *claims, node="n0"):
    """Return the reasons of an answer by stage; of several reasons at one stage, the last."""
    answer = allocate(stock, node, claims, reasons=True)
    assert answer.verdict == "infeasible"
    return {reason.stage: reason for reason in answer.reasons}


def test_the_stages_account_for_all_devices():
    stock = fleet({"n0": (gpu("a"), gpu("b"), gpu("c", profile="1g"))}, taken("n0", "a"), taken("n0", "b"))
    by_stage = reasons_by_stage(stock, claim("x", exactly("gpu")))
    assert [(reason.stage, reason.rejected, reason.total) for reason in by_stage.values()] == [
        (Stage.CLASS, 1, 3),
        (Stage.IN_USE, 2, 2),
    ]


def test_the_claim_that_holds_the_device_is_named():
    stock = fleet({"n0": (gpu("a"),)}, taken("n0", "a", name="other"))
    assert "held by claim default/other" in reasons_by_stage(stock, claim("x", exactly("gpu")))[Stage.IN_USE].text


def test_the_holder_of_an_extended_resource_claim_is_its_pod():
    holding_claim = taken("n0", "a", name="train-extended-resources-8mhkk")
    metadata = replace(holding_claim.metadata, annotations={EXTENDED_CLAIM: "true"})
    pod = ResourceClaimConsumerReference(resource="pods", name="train", uid="u")
    stock = fleet(
        {"n0": (gpu("a"),)},
        replace(holding_claim, metadata=metadata, status=replace(holding_claim.status, reserved_for=(pod,))),
    )
    pending_claim = claim("x", exactly("gpu"))
    assert "held by pod default/train" in reasons_by_stage(stock, pending_claim)[Stage.IN_USE].text


def test_a_device_of_an_earlier_claim_is_not_called_held():
    stock = fleet({"n0": (gpu("a"),)})
    by_stage = reasons_by_stage(stock, claim("x", exactly("gpu")), claim("y", exactly("gpu")))
    assert (by_stage[Stage.IN_USE].claim, by_stage[Stage.IN_USE].text) == ("default/y", "given to default/x")


def test_a_device_of_an_earlier_request_is_named():
    stock = fleet({"n0": (gpu("a"),)})
    by_stage = reasons_by_stage(stock, claim("x", exactly("gpu", name="one"), exactly("gpu", name="two")))
    assert (by_stage[Stage.IN_USE].request, by_stage[Stage.IN_USE].text) == (
        "two",
        "given to request one of the same claim",
    )


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("device.driver == 'other'", "ResourceClaim/default/x"),
        (
            "device.attributes['{0}'].profile == 'mig'",
            "published values of {0}/profile: 1g, gpu (ResourceClaim/default/x",
        ),
        (
            "device.attributes['{0}'].?model.orValue('') == 'H100'",
            "no device publishes {0}/model (ResourceClaim/default/x",
        ),
        (
            "device.capacity['{0}'].memory.isGreaterThan(quantity('80Gi'))",
            "published values of {0}/memory: 40Gi (ResourceClaim",
        ),
    ],
)
def test_the_reason_for_an_unmatched_selector_quotes_the_selector(selector, words):
    stock = fleet({"n0": (gpu("a", memory="40Gi"), gpu("b", memory="40Gi", profile="1g"))})
    driver = next(iter(stock.slices.values())).spec.driver
    expression = selector.replace("{0}", driver)
    stock = stock.with_object(replace(stock.classes["gpu"], spec=replace(stock.classes["gpu"].spec, selectors=())))
    text = reasons_by_stage(stock, claim("x", exactly("gpu", selector=expression)))[Stage.SELECTOR].text
    assert text.startswith(words.replace("{0}", driver))
    assert expression in text


def test_the_taint_that_excludes_a_device_is_named():
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "a"}, "taint": {"key": "repair", "value": "fan", "effect": "NoSchedule"}},
    }
    stock = fleet({"n0": (gpu("a"),)}, rules=[convert(rule, DeviceTaintRule)])
    assert "repair=fan:NoSchedule" in reasons_by_stage(stock, claim("x", exactly("gpu")))[Stage.TAINT].text


def test_the_reason_for_missing_counters_names_amounts_and_holder():
    stock = fleet({"n0": partitions("gpu-0")}, taken("n0", "gpu-0-1g-0", name="other"))
    reason = reasons_by_stage(stock, claim("x", exactly("8g")))[Stage.COUNTERS]
    assert reason.rejected == 1
    assert "needs 1 slot-0 of gpu-0, 0 left" in reason.text
    assert "gpu-0-1g-0 (held by claim default/other)" in reason.text


def test_the_reason_for_excluding_groups_names_counter_set_and_holder():
    consumption = [{"counterSet": "gpu-0", "counters": {"slot-7": {"value": "1"}}}]
    devices = (*partitions("gpu-0", groups=["mig"])[:2], gpu("odd", profile="8g", consumesCounters=consumption))
    stock = fleet({"n0": devices}, taken("n0", "gpu-0-1g-0", name="other"))
    text = reasons_by_stage(stock, claim("x", exactly("8g")))[Stage.GROUPS].text
    assert text == "names no group; on counter set gpu-0 is gpu-0-1g-0 (held by claim default/other, in mig)"


def test_the_reason_for_used_capacity_names_the_amount_left():
    stock = fleet({"n0": (shared("a", "80Gi"),)}, taken("n0", "a", memory="30Gi", name="other"))
    text = reasons_by_stage(stock, claim("x", exactly("gpu", memory="60Gi")))[Stage.CAPACITY].text
    assert text == "memory: 60Gi requested, 50Gi of 80Gi left (held by claim default/other)"


def test_a_request_beyond_the_capacity_of_devices_names_that_capacity():
    stock = fleet({"n0": (shared("a", "80Gi"),)})
    text = reasons_by_stage(stock, claim("x", exactly("gpu", memory="90Gi")))[Stage.CAPACITY].text
    assert text == "memory: 90Gi requested, the device has 80Gi"


def test_the_reason_for_a_constraint_names_the_value_needed():
    stock = fleet({"n0": (gpu("a", root="r0"), gpu("b", root="r1", profile="1g"))})
    constrained_claim = claim(
        "x", exactly("gpu", name="one"), exactly("1g", name="two"), constraints=[{"matchAttribute": ROOT}]
    )
    reason = reasons_by_stage(stock, constrained_claim)[Stage.CONSTRAINT]
    assert (reason.request, reason.text) == ("two", f"{ROOT} is r1, not r0 (matchAttribute)")


def test_an_attribute_that_a_constraint_misses_is_named():
    constrained_claim = claim("x", exactly("gpu"), constraints=[{"matchAttribute": ROOT}])
    assert (
        reasons_by_stage(fleet({"n0": (gpu("a"),)}), constrained_claim)[Stage.CONSTRAINT].text
        == f"lacks attribute {ROOT} (matchAttribute)"
    )


def test_a_reason_counts_the_devices_left_if_too_few():
    stock = fleet({"n0": (gpu("a"), gpu("b"))})
    assert (
        reasons_by_stage(stock, claim("x", exactly("gpu", count=3)))[Stage.SEARCH].text
        == "2 of the 3 devices requested are left"
    )


def test_free_devices_that_exclude_each_other_are_reported():
    stock = fleet({"n0": (gpu("a", root="r0"), gpu("b", root="r1"))})
    by_stage = reasons_by_stage(stock, claim("x", exactly("gpu", count=2), constraints=[{"matchAttribute": ROOT}]))
    assert by_stage[Stage.SEARCH].text == "2 are left, but no 2 of them can be allocated together"


def test_nodes_without_a_slice_have_a_reason_of_their_own():
    stock = fleet({"n0": (gpu("a"),), "n1": ()})
    stock = stock.without("ResourceSlice", "n1-devices")
    by_stage = reasons_by_stage(stock, claim("x", exactly("gpu")), node="n1")
    assert by_stage[Stage.NODE].text == "no ResourceSlice offers this node a device"


def with_empty_generation(stock, *, keeps_older=True):
    """Return the same fleet, where the newest generation of each pool has no devices, with or without the older generation."""
    older_slices = [page.slice for page in stock.pages.values()]
    newest_slices = [
        replace(
            slice_,
            metadata=replace(slice_.metadata, name=f"{slice_.metadata.name}-2"),
            spec=replace(
                slice_.spec, devices=(), pool=replace(slice_.spec.pool, generation=slice_.spec.pool.generation + 1)
            ),
        )
        for slice_ in older_slices
    ]
    slices = (*older_slices, *newest_slices) if keeps_older else newest_slices
    return Stock.of(nodes=stock.nodes.values(), slices=slices, classes=stock.classes.values())


@pytest.mark.parametrize(
    ("keeps_older", "stage", "words"),
    [
        (True, Stage.POOL, "has no devices in generation 2, which replaces older ones"),
        (False, Stage.NODE, "there are no devices at all"),
    ],
)
def test_an_empty_newest_generation_of_a_pool_is_a_reason(keeps_older, stage, words):
    stock = with_empty_generation(fleet({"n0": (gpu("a"),)}), keeps_older=keeps_older)
    [(actual_stage, reason)] = reasons_by_stage(stock, claim("x", exactly("gpu"))).items()
    assert actual_stage is stage
    assert words in reason.text


def test_nodes_are_sorted_by_how_nearly_they_can_serve():
    answers = {
        "far": refusal_at(Stage.CLASS),
        "near": refusal_at(Stage.CAPACITY),
        "broken": NodeAnswer(SearchVerdict.ERROR, error="bad CEL"),
        "fits": NodeAnswer(SearchVerdict.FEASIBLE),
        "nearer": refusal_at(Stage.CAPACITY, rejected_count=2, total_count=2),
    }
    assert [group.nodes for group in explain.equal_answers(answers)] == [
        ("fits",),
        ("nearer",),
        ("near",),
        ("far",),
        ("broken",),
    ]


def test_nodes_with_equal_refusals_are_grouped():
    answers = {"a": refusal_at(Stage.CLASS), "b": refusal_at(Stage.IN_USE), "c": refusal_at(Stage.CLASS)}
    assert [group.nodes for group in explain.equal_answers(answers)] == [("b",), ("a", "c")]


def test_a_fleet_is_summarized_in_one_line():
    answers = {
        "a": refusal_at(Stage.CLASS),
        "b": refusal_at(Stage.CLASS),
        "c": refusal_at(Stage.IN_USE),
        "d": NodeAnswer(SearchVerdict.UNDECIDED),
    }
    reasons = explain.by_text({name: explain.cannot_serve(answer) for name, answer in answers.items()})
    assert [reason.nodes for reason in reasons] == [("a", "b"), ("c",), ("d",)]
    assert explain.summary(reasons, 4).text == (
        "0 of 4 nodes can serve the claims: 2 node(s) cannot serve request r: 1 of 1 devices are not of the class; "
        "1 node(s) cannot serve request r: 1 of 1 devices are in use; 1 node(s) were not checked in time"
    )


def test_a_reason_is_printed_with_counts_stage_and_devices():
    reason = Rejection(Stage.IN_USE, "default/a", "r", 5, 8, ("gpu-0", "gpu-1"), "held by claim default/b")
    assert list(explain.lines(NodeAnswer(SearchVerdict.INFEASIBLE, reasons=(reason,)))) == [
        "claim default/a, request r:",
        "     5 of 8  in use         held by claim default/b",
        "                            gpu-0, gpu-1 and 3 more",
    ]


ALL_GPUS = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}


def with_missing_slices(stock):
    """Return the same fleet, where one slice of each pool is not published yet."""
    slices = [page.slice for page in stock.pages.values()]
    slices_of_incomplete_pools = [
        replace(slice_, spec=replace(slice_.spec, pool=replace(slice_.spec.pool, resource_slice_count=2)))
        for slice_ in slices
    ]
    return Stock.of(nodes=stock.nodes.values(), slices=slices_of_incomplete_pools, classes=stock.classes.values())


FLEET_OF_ONE_GPU = fleet({"n0": (gpu("a"),)})
FLEET_WITHOUT_SHARES = FLEET_OF_ONE_GPU.as_read_by(server_of(36, {"DRAConsumableCapacity": False}))
ERROR_BY_CAUSE = {
    Cause.MISSING_KEY: (
        FLEET_OF_ONE_GPU,
        exactly("gpu", selector='device.attributes["gpu.example.com"].x == 1'),
        ".orValue(",
    ),
    Cause.MISSING_OBJECT: (FLEET_OF_ONE_GPU, exactly("absent"), "add the object"),
    Cause.INVALID_POOL: (fleet({"n0": (gpu("a"), gpu("a"))}), ALL_GPUS, "without the contradiction"),
    Cause.INCOMPLETE_POOL: (with_missing_slices(FLEET_OF_ONE_GPU), ALL_GPUS, "wait until the driver has published"),
    Cause.TOO_MANY_DEVICES: (FLEET_OF_ONE_GPU, exactly("gpu", count=33), "fewer devices in one claim"),
    Cause.GATE_OFF: (FLEET_WITHOUT_SHARES, exactly("gpu", memory="1Gi"), "enable the feature gate"),
}


@pytest.mark.parametrize("cause", Cause)
def test_an_error_has_the_fix_for_its_cause(cause):
    stock, request, advice = ERROR_BY_CAUSE[cause]
    answer = allocate(stock, "n0", [claim("x", request)])
    assert (answer.verdict, answer.cause) == (SearchVerdict.ERROR, cause)
    error, fix = explain.lines(answer)
    assert error == f"error: {answer.error}"
    assert fix.startswith("  fix: ")
    assert advice in fix


def test_an_error_that_quotes_another_error_has_no_wrong_fix():
    text = 'device.attributes["gpu.example.com"]["does not exist"] == 1'
    answer = allocate(FLEET_OF_ONE_GPU, "n0", [claim("x", exactly("gpu", selector=text))])
    assert "does not exist" in answer.error
    assert [line for line in explain.lines(answer) if "add the object" in line] == []
