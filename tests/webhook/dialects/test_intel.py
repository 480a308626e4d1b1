"""Intel: whole cards by kernel driver, where a unit is one; Gaudi."""

from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import actions, became, exactly, pod, selected, untouched
from webhook.dialects.plugins.intel import DIALECT

I915, XE, GAUDI = "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"
CARDS = {"meanings": {I915: "whole", XE: "whole"}}
ROWS = {
    I915: Row(pod({I915: 1}), "translated", CARDS),
    XE: Row(pod({XE: 1}), "translated", CARDS),
    GAUDI: Row(pod({GAUDI: 8}), "translated"),
    **rows_left(DIALECT, {GAUDI: 1}),
}


def test_the_kernel_driver_is_asked_for():
    done = became(pod({I915: 1}), **CARDS)
    assert selected(done, type="gpu", driver="i915")
    assert not selected(done, type="gpu", driver="xe")
    assert not selected(done, type="vf", driver="i915")


def test_a_unit_that_may_be_shared_stays():
    assert untouched(became(pod({I915: 1})))
    assert untouched(became(pod({XE: 1}), meanings={I915: "whole"}))


def test_a_whole_card_is_not_asked_for_beside_a_part_of_one():
    done = became(pod({I915: 1, "gpu.intel.com/millicores": 500}), **CARDS)
    assert untouched(done)
    assert set(actions(done).values()) == {"left"}


def test_gaudi_cards_are_healthy_ones():
    (request,) = exactly(became(pod({GAUDI: 8, "hugepages-2Mi": "9500Mi"})))
    assert (request["class"], request["count"]) == ("gaudi.intel.com", 8)
    assert request["cel"] == ['device.attributes["gaudi.intel.com"].?healthy.orValue(false)']
