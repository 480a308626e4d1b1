"""Intel: whole GPUs by their kernel driver, Gaudi cards, and QAT functions by their services."""

import pytest

from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import exactly, outcomes, pod, selected, untouched, verdict_of
from webhook.dialects.intel import DIALECT

I915, XE, GAUDI = "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"
QAT = "qat.intel.com/"
SERVICES = {"cy": "sym;asym", "dc": "dc", "sym": "sym", "asym": "asym", "sym-dc": "sym;dc", "asym-dc": "asym;dc"}
WHOLE_INTEL_GPUS = {"meanings": {I915: "whole", XE: "whole"}}
ROWS = {
    I915: Row(pod({I915: 1}), "translated", WHOLE_INTEL_GPUS),
    XE: Row(pod({XE: 1}), "translated", WHOLE_INTEL_GPUS),
    GAUDI: Row(pod({GAUDI: 8}), "translated"),
    **{f"{QAT}{name}": Row(pod({f"{QAT}{name}": 1}), "approximated") for name in SERVICES},
    **rows_not_translated(DIALECT, {GAUDI: 1}),
}


def test_the_kernel_driver_is_selected():
    verdict = verdict_of(pod({I915: 1}), **WHOLE_INTEL_GPUS)
    assert selected(verdict, type="gpu", driver="i915")
    assert not selected(verdict, type="gpu", driver="xe")
    assert not selected(verdict, type="vf", driver="i915")


def test_a_possibly_shared_unit_is_left_unchanged():
    assert untouched(verdict_of(pod({I915: 1})))
    assert untouched(verdict_of(pod({XE: 1}), meanings={I915: "whole"}))


def test_a_whole_card_beside_a_part_is_left_unchanged():
    verdict = verdict_of(pod({I915: 1, "gpu.intel.com/millicores": 500}), **WHOLE_INTEL_GPUS)
    assert untouched(verdict)
    assert set(outcomes(verdict).values()) == {"left"}


def test_only_healthy_gaudi_cards_are_requested():
    (request,) = exactly(verdict_of(pod({GAUDI: 8, "hugepages-2Mi": "9500Mi"})))
    assert (request["class"], request["count"]) == ("gaudi.intel.com", 8)
    assert request["cel"] == ['device.attributes["gaudi.intel.com"].?healthy.orValue(false)']


@pytest.mark.parametrize(("name", "services"), SERVICES.items())
def test_a_qat_function_is_requested_by_its_services(name, services):
    verdict = verdict_of(pod({f"{QAT}{name}": 2}))
    (request,) = exactly(verdict)
    assert (request["class"], request["count"]) == ("qat.intel.com", 2)
    assert [service for service in SERVICES.values() if selected(verdict, services=service)] == [services]


@pytest.mark.parametrize("name", ["gpu", "gaudi", "qat"])
def test_a_name_of_intels_classes_is_not_a_network_pool(name):
    verdict = verdict_of(pod({f"intel.com/{name}": 1}))
    assert untouched(verdict)
    assert "extendedResourceName" in verdict.warnings[0]
    assert "pool" not in verdict.warnings[0]
