"""Hygon: whole cards, by their driver's class; parts of them stay, with the reason."""

import pytest

from tests.webhook.dialects.rows import Row
from tests.webhook.pods import became, exactly, outcomes, pod, selected, untouched

DCU, HCU = "hygon.com/dcu", "hygon.cn/hcu"
ROWS = {DCU: Row(pod({DCU: 1}), "translated"), HCU: Row(pod({HCU: 2}), "translated")}


def test_whole_cards_name_no_amounts_for_then_the_driver_gives_all_of_one():
    done = became(pod({DCU: 4}))
    (request,) = exactly(done)
    assert (request["class"], request["count"]) == ("dra.hygon.com", 4)
    assert "capacity" not in request
    assert selected(done, type="hcu")
    assert not selected(done, type="vhcu")


@pytest.mark.parametrize("limits", [{HCU: 0, DCU: 1}, {DCU: 0, HCU: 1}, {DCU: 1, HCU: 0}])
def test_of_two_names_for_the_number_of_cards_one_that_says_none_takes_nothing_away(limits):
    """Only the first name used to count, so both keys were removed without a claim."""
    (request,) = exactly(became(pod(limits)))
    assert (request["class"], request["count"]) == ("dra.hygon.com", 1)


def test_a_part_of_a_card_stays_and_says_that_there_is_a_driver():
    done = became(pod({"hygon.com/dcunum": 1, "hygon.com/dcucores": 30, "hygon.com/dcumem": 8192}))
    assert untouched(done)
    assert "counts a share's compute in units" in done.warnings[0]
    assert "whole cards" not in done.warnings[0]


def test_a_card_cut_by_hand_is_known():
    assert outcomes(became(pod({"hygon.com/dcu-share-4c-16g": 1}))) == {"hygon.com/dcu-share-4c-16g": "left"}
