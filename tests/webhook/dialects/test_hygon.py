"""Hygon: requests for whole cards use the class of the driver; requests for parts of cards are left unchanged with a reason."""

import pytest

from tests.webhook.pods import exactly, pod, selected, untouched, verdict_of

DCU, HCU = "hygon.com/dcu", "hygon.cn/hcu"


def test_a_request_for_whole_cards_has_no_capacity():
    """Without amounts the driver allocates all of a card."""
    verdict = verdict_of(pod({DCU: 4}))
    (request,) = exactly(verdict)
    assert (request["class"], request["count"]) == ("dra.hygon.com", 4)
    assert "capacity" not in request
    assert selected(verdict, type="hcu")
    assert not selected(verdict, type="vhcu")


@pytest.mark.parametrize("limits", [{HCU: 0, DCU: 1}, {DCU: 0, HCU: 1}, {DCU: 1, HCU: 0}])
def test_a_zero_card_count_does_not_cancel_the_other_name(limits):
    """A card has two resource names. The amounts of both names count."""
    (request,) = exactly(verdict_of(pod(limits)))
    assert (request["class"], request["count"]) == ("dra.hygon.com", 1)


def test_the_reason_about_a_partial_card_names_its_units():
    verdict = verdict_of(pod({"hygon.com/dcunum": 1, "hygon.com/dcucores": 30, "hygon.com/dcumem": 8192}))
    assert untouched(verdict)
    assert "counts a share's compute in units" in verdict.warnings[0]
    assert "whole cards" not in verdict.warnings[0]
