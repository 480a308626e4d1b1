"""Ascend: templates become memory and a percentage of time, limits are kept, and whole cards have no capacity."""

import pytest

from dra import cel
from dra.objects.device import Device, DeviceAttribute
from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import devices, exactly, outcomes, pod, refused, untouched, verdict_of
from webhook.dialects.plugins.ascend import DIALECT
from webhook.state.configuration import read_configuration

DRIVER = "ascend.project-hami.io"
CARD = "huawei.com/Ascend310P"
MEMORY, CORE = f"{CARD}-memory", f"{CARD}-core"
SOFT = {"huawei.com/vnpu-mode": "hami-core"}
ROWS = {
    **rows_left(DIALECT, {CARD: 1}),
    "huawei.com/Ascend<model>": Row(pod({CARD: 1}), "translated", key=CARD),
    "huawei.com/Ascend<model>-memory": Row(pod({CARD: 1, MEMORY: 3072}), "approximated", key=MEMORY),
    "huawei.com/Ascend<model>-core": Row(pod({CARD: 1, CORE: 30}), "translated", key=CORE),
    "huawei.com/vnpu-mode": Row(pod({CARD: 1, MEMORY: 1}, annotations=SOFT), "translated"),
}


def capacity(limits: dict, **more) -> dict:
    """Return the capacity of each request; {} for a whole card."""
    (amounts,) = {
        tuple(sorted(request.get("capacity", {}).items())) for request in exactly(verdict_of(pod(limits, **more)))
    }
    return dict(amounts)


def product(done, *names: str) -> list[str]:
    """Return which of these models match the selector of the only request."""
    (request,) = exactly(done)
    selector = cel.compile(*request["cel"])
    devices = {name: Device(name="d", attributes={"productName": DeviceAttribute(string=name)}) for name in names}
    return [name for name, device in devices.items() if selector.matches(cel.view_of(DRIVER, device))]


@pytest.mark.parametrize(
    ("memory", "given"),
    [
        (0, {"memory": "3Gi", "cores": "12"}),
        (3072, {"memory": "3Gi", "cores": "12"}),
        (3073, {"memory": "6Gi", "cores": "25"}),
        (12288, {"memory": "12Gi", "cores": "50"}),
        (12289, {}),
        (24576, {}),
    ],
)
def test_memory_is_rounded_up_to_a_template_or_whole_card(memory, given):
    assert capacity({CARD: 1, MEMORY: memory}) == given


def test_more_memory_than_the_card_has_is_refused():
    done = verdict_of(pod({CARD: 1, MEMORY: 24577}))
    assert refused(done)
    assert "24576" in done.refusals[0].remedy


def test_a_template_is_a_part_of_one_card():
    assert refused(verdict_of(pod({CARD: 2, MEMORY: 3072})))
    assert capacity({CARD: 2, MEMORY: 20000}) == {}


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ({MEMORY: 1000, CORE: 30}, {"memory": "1000Mi", "cores": "30"}),
        ({MEMORY: 1000}, {"memory": "1000Mi", "cores": "0"}),
        ({MEMORY: 1000, CORE: 120}, {"memory": "1000Mi", "cores": "100"}),
        ({CORE: 30}, {"cores": "30"}),
        ({CORE: 100}, {}),
        ({MEMORY: 0, CORE: 0}, {}),
        ({}, {}),
    ],
)
def test_limits_are_requested_unchanged(limits, given):
    assert capacity({CARD: 2, **limits}, annotations=SOFT) == given


def test_cores_alone_select_the_limit_mode():
    assert capacity({CARD: 1, MEMORY: 1000, CORE: 30}) == {"memory": "1000Mi", "cores": "30"}


def test_limits_without_cores_are_approximated():
    done = verdict_of(pod({CARD: 1, MEMORY: 1000}, annotations=SOFT))
    assert outcomes(done) == {CARD: "approximated", MEMORY: "translated", "huawei.com/vnpu-mode": "translated"}


@pytest.mark.parametrize("word", ["use", "no-use"])
def test_a_pod_that_names_cards_is_left(word):
    done = verdict_of(pod({CARD: 1}, annotations={f"hami.io/{word}-Ascend310P-uuid": "1-2"}))
    assert untouched(done)
    assert "node and number" in done.warnings[0]


def test_parts_of_two_cards_are_on_distinct_cards():
    done = verdict_of(pod({CARD: 2, MEMORY: 1000}, annotations=SOFT))
    assert [constraint["distinctAttribute"] for constraint in devices(done)["constraints"]] == [
        "ascend.project-hami.io/uuid"
    ]


def test_a_card_is_requested_by_its_model():
    assert product(verdict_of(pod({"huawei.com/Ascend910B4": 1})), "910B4", "910B4-1", "310P3") == ["910B4"]
    assert product(verdict_of(pod({CARD: 1})), "310P1", "310P3") == ["310P3"]


def test_two_models_in_one_container_are_left():
    done = verdict_of(pod({CARD: 1, "huawei.com/Ascend910B3": 2}))
    assert untouched(done)
    assert "one set of limits" in done.warnings[0]


@pytest.mark.parametrize("key", ["huawei.com/Ascend910C", "huawei.com/Ascend310P-2c"])
def test_a_name_of_an_unknown_model_is_left(key):
    done = verdict_of(pod({key: 2}))
    assert untouched(done)
    assert "`ascend.products` has no product name" in done.warnings[0]


def test_a_model_uses_the_products_and_templates_declared_for_it():
    declared = {"products": {"Ascend910": "910B3"}, "templates": {"Ascend910": [{"memory": 100, "cores": 40}]}}
    done = verdict_of(pod({"huawei.com/Ascend910": 1, "huawei.com/Ascend910-memory": 50}), ascend=declared)
    assert product(done, "910A", "910B3") == ["910B3"]
    assert exactly(done)[0]["capacity"] == {"memory": "100Mi", "cores": "40"}
    assert not untouched(verdict_of(pod({CARD: 1}), ascend=declared))


def test_a_model_without_templates_is_not_divided():
    done = verdict_of(pod({"huawei.com/Ascend910": 1, "huawei.com/Ascend910-memory": 50}), ascend={"products": {"Ascend910": "910B3"}})  # fmt: skip
    assert untouched(done)
    assert "`ascend.templates` does not say" in done.warnings[0]


@pytest.mark.parametrize("limits", [{MEMORY: 3072}, {CARD: 0, MEMORY: 3072}, {CORE: 10}])
def test_without_a_card_count_nothing_is_requested(limits):
    done = verdict_of(pod(limits))
    assert untouched(done)
    assert set(outcomes(done).values()) == {"left"}


def test_another_mode_is_left():
    done = verdict_of(pod({CARD: 1}, annotations={"huawei.com/vnpu-mode": "other"}))
    assert untouched(done)
    assert "'other'" in done.warnings[0]


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ({"products": {"a/b": ""}}, "/ascend/products/a~1b"),
        ({"templates": {"m": [{"memory": 0, "cores": 1}]}}, "/ascend/templates/m/0/memory"),
        ({"templates": {"m": [{"memory": 1, "cores": 101}]}}, "/ascend/templates/m/0/cores"),
    ],
)
def test_an_invalid_ascend_option_is_rejected_at_its_path(option, place):
    value = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "ascend": option}
    configuration, findings = read_configuration(value)
    assert configuration is None
    assert [finding.path for finding in findings] == [place]


HUAWEI = "huawei.com/Ascend910"


def test_any_ascend_910_card_is_served_by_huaweis_own_driver():
    done = verdict_of(pod({HUAWEI: 8}))
    assert outcomes(done) == {HUAWEI: "translated"}
    (request,) = exactly(done)
    assert (request["class"], request["count"]) == ("npu.huawei.com", 8)
    selector = cel.compile(*request["cel"])
    chips = ("Ascend910", "Ascend910B", "Ascend910A3", "Ascend910A5", "Ascend310P")
    taken = [
        chip
        for chip in chips
        if selector.matches(
            cel.view_of("npu.huawei.com", Device(name="d", attributes={"deviceType": DeviceAttribute(string=chip)}))
        )
    ]
    assert taken == ["Ascend910", "Ascend910B", "Ascend910A3"]


def test_a_910_of_a_declared_product_uses_hamis_driver():
    done = verdict_of(pod({HUAWEI: 1}), ascend={"products": {"Ascend910": "910B3"}})
    (request,) = exactly(done)
    assert request["class"] == "hami-vnpu-core.project-hami.io"
