"""Ascend: a share is rounded up to a template, a fixed amount of memory and cores. In the limit mode it is not rounded. Whole cards have no capacity."""

import pytest

from dra import cel
from dra.objects.device import Device, DeviceAttribute
from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import devices, exactly, outcomes, pod, refused, selected, untouched, verdict_of
from webhook.dialects.ascend import DIALECT

DRIVER = "ascend.project-hami.io"
CARD = "huawei.com/Ascend310P"
MEMORY, CORE = f"{CARD}-memory", f"{CARD}-core"
LIMIT_MODE = {"huawei.com/vnpu-mode": "hami-core"}
ROWS = {
    **rows_not_translated(DIALECT, {CARD: 1}),
    "huawei.com/Ascend<model>": Row(pod({CARD: 1}), "translated", key=CARD),
    "huawei.com/Ascend<model>-memory": Row(pod({CARD: 1, MEMORY: 3072}), "approximated", key=MEMORY),
    "huawei.com/Ascend<model>-core": Row(pod({CARD: 1, CORE: 30}), "translated", key=CORE),
    "huawei.com/vnpu-mode": Row(pod({CARD: 1, MEMORY: 1}, annotations=LIMIT_MODE), "translated"),
}


def capacity(limits: dict, **pod_fields) -> dict:
    """Return the capacity that all requests of a pod have; {} for whole cards."""
    (amounts,) = {
        tuple(sorted(request.get("capacity", {}).items())) for request in exactly(verdict_of(pod(limits, **pod_fields)))
    }
    return dict(amounts)


def matching_products(verdict, *names: str) -> list[str]:
    """Return which of these product names match the selector of the only request."""
    (request,) = exactly(verdict)
    selector = cel.compile(*request["cel"])
    devices = {name: Device(name="d", attributes={"productName": DeviceAttribute(string=name)}) for name in names}
    return [name for name, device in devices.items() if selector.matches(cel.view_of(DRIVER, device))]


@pytest.mark.parametrize(
    ("limits", "expected_capacity"),
    [
        ({MEMORY: 0}, {"memory": "3Gi", "cores": "12"}),
        ({MEMORY: 3072}, {"memory": "3Gi", "cores": "12"}),
        ({MEMORY: 3073}, {"memory": "6Gi", "cores": "25"}),
        ({MEMORY: 12288}, {"memory": "12Gi", "cores": "50"}),
        ({MEMORY: 12289}, {}),
        ({MEMORY: 24576}, {}),
        ({MEMORY: 1000, CORE: 30}, {"memory": "1000Mi", "cores": "30"}),  # an amount of cores selects the limit mode
    ],
)
def test_memory_is_rounded_up_to_a_template_or_whole_card(limits, expected_capacity):
    assert capacity({CARD: 1, **limits}) == expected_capacity


def test_more_memory_than_the_card_has_is_refused():
    verdict = verdict_of(pod({CARD: 1, MEMORY: 24577}))
    assert refused(verdict)
    assert "24576" in verdict.refusals[0].remedy


def test_templates_on_two_cards_are_refused():
    assert refused(verdict_of(pod({CARD: 2, MEMORY: 3072})))
    assert capacity({CARD: 2, MEMORY: 20000}) == {}


@pytest.mark.parametrize(
    ("limits", "expected_capacity"),
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
def test_in_the_limit_mode_amounts_are_not_rounded_to_templates(limits, expected_capacity):
    assert capacity({CARD: 2, **limits}, annotations=LIMIT_MODE) == expected_capacity


def test_limits_without_cores_are_approximated():
    verdict = verdict_of(pod({CARD: 1, MEMORY: 1000}, annotations=LIMIT_MODE))
    assert outcomes(verdict) == {CARD: "approximated", MEMORY: "translated", "huawei.com/vnpu-mode": "translated"}


@pytest.mark.parametrize("word", ["use", "no-use"])
def test_a_pod_that_names_cards_is_left_unchanged(word):
    verdict = verdict_of(pod({CARD: 1}, annotations={f"hami.io/{word}-Ascend310P-uuid": "1-2"}))
    assert untouched(verdict)
    assert "node and number" in verdict.warnings[0]


def test_parts_of_two_cards_are_on_distinct_cards():
    verdict = verdict_of(pod({CARD: 2, MEMORY: 1000}, annotations=LIMIT_MODE))
    assert [constraint["distinctAttribute"] for constraint in devices(verdict)["constraints"]] == [
        "ascend.project-hami.io/uuid"
    ]


def test_a_card_is_requested_by_its_model():
    assert matching_products(verdict_of(pod({"huawei.com/Ascend910B4": 1})), "910B4", "910B4-1", "310P3") == ["910B4"]
    assert matching_products(verdict_of(pod({CARD: 1})), "310P1", "310P3") == ["310P3"]


def test_two_models_in_one_container_are_left_unchanged():
    verdict = verdict_of(pod({CARD: 1, "huawei.com/Ascend910B3": 2}))
    assert untouched(verdict)
    assert "one set of limits" in verdict.warnings[0]


@pytest.mark.parametrize("key", ["huawei.com/Ascend910C", "huawei.com/Ascend310P-2c"])
def test_a_name_of_an_unknown_model_is_left_unchanged(key):
    verdict = verdict_of(pod({key: 2}))
    assert untouched(verdict)
    assert "`ascend.products` has no product name" in verdict.warnings[0]


def test_a_model_uses_the_products_and_templates_declared_for_it():
    options = {"products": {"Ascend910": "910B3"}, "templates": {"Ascend910": [{"memory": 100, "cores": 40}]}}
    verdict = verdict_of(pod({"huawei.com/Ascend910": 1, "huawei.com/Ascend910-memory": 50}), ascend=options)
    assert matching_products(verdict, "910A", "910B3") == ["910B3"]
    assert exactly(verdict)[0]["capacity"] == {"memory": "100Mi", "cores": "40"}
    assert not untouched(verdict_of(pod({CARD: 1}), ascend=options))


def test_a_model_without_templates_is_not_divided():
    verdict = verdict_of(pod({"huawei.com/Ascend910": 1, "huawei.com/Ascend910-memory": 50}), ascend={"products": {"Ascend910": "910B3"}})  # fmt: skip
    assert untouched(verdict)
    assert "`ascend.templates` does not say" in verdict.warnings[0]


@pytest.mark.parametrize("limits", [{MEMORY: 3072}, {CARD: 0, MEMORY: 3072}, {CORE: 10}])
def test_without_a_card_count_nothing_is_requested(limits):
    verdict = verdict_of(pod(limits))
    assert untouched(verdict)
    assert set(outcomes(verdict).values()) == {"left"}


def test_an_unknown_mode_is_left_unchanged():
    verdict = verdict_of(pod({CARD: 1}, annotations={"huawei.com/vnpu-mode": "other"}))
    assert untouched(verdict)
    assert "'other'" in verdict.warnings[0]


HUAWEI = "huawei.com/Ascend910"


def test_a_bare_count_of_910_cards_uses_huaweis_own_driver():
    verdict = verdict_of(pod({HUAWEI: 8}))
    assert outcomes(verdict) == {HUAWEI: "translated"}
    (request,) = exactly(verdict)
    assert (request["class"], request["count"]) == ("npu.huawei.com", 8)
    chips = ("Ascend910", "Ascend910B", "Ascend910A3", "Ascend910A5", "Ascend310P")
    matched_chips = [chip for chip in chips if selected(verdict, deviceType=chip)]
    assert matched_chips == ["Ascend910", "Ascend910B", "Ascend910A3"]


def test_a_910_of_a_declared_product_uses_hamis_driver():
    verdict = verdict_of(pod({HUAWEI: 1}), ascend={"products": {"Ascend910": "910B3"}})
    (request,) = exactly(verdict)
    assert request["class"] == "hami-vnpu-core.project-hami.io"
