"""Which step of a certificate rotation is due (`certs.rotation.step`). A leaf is a serving certificate."""

import datetime as dt

import pytest

from certs.rotation import LEADS_TO, SKEW, TABLE, RotationPhase, RotationStep, Span, View, step
from tests.certs.stores import DAY, NOW, POLICY

FRESH_VIEW = View(
    RotationPhase.STEADY,
    Span(NOW, NOW + 300 * DAY),
    (Span(NOW, NOW + 90 * DAY), Span(NOW, NOW + 90 * DAY)),
    leaves_sound=True,
    since=NOW,
    bundle_everywhere=True,
)


def step_after(days, view=FRESH_VIEW, **changes):
    return step(view._replace(**changes), now=NOW + days * DAY, policy=POLICY)


def test_an_empty_secret_requires_a_remake():
    assert step(View(RotationPhase.EMPTY), now=NOW, policy=POLICY) is RotationStep.REMAKE


def test_a_fresh_pair_is_left_alone():
    assert step_after(0) is None
    assert step_after(59.9) is None


def test_a_leaf_is_renewed_at_two_thirds_of_its_life():
    assert step_after(60.01) is RotationStep.SIGN


@pytest.mark.parametrize("phase", [RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED])
def test_a_missing_or_invalid_leaf_is_signed_in_every_phase(phase):
    assert step_after(0, phase=phase, leaves_sound=False) is RotationStep.SIGN


def test_an_authority_gets_a_successor_at_two_thirds():
    leaf = Span(NOW + 199 * DAY, NOW + 289 * DAY)
    assert step_after(199, leaves=(leaf, leaf)) is None
    assert step_after(200.01, leaves=(leaf, leaf)) is RotationStep.INTRODUCE


@pytest.mark.parametrize(
    ("phase", "next_step"),
    [(RotationPhase.INTRODUCED, RotationStep.SWITCH), (RotationPhase.SWITCHED, RotationStep.RETIRE)],
)
def test_a_rotation_phase_lasts_until_all_clients_can_have_noticed(phase, next_step):
    view = FRESH_VIEW._replace(phase=phase, since=NOW)
    assert step(view, now=NOW + dt.timedelta(minutes=9), policy=POLICY) is None
    assert step(view, now=NOW + dt.timedelta(minutes=10), policy=POLICY) is next_step
    assert step(view._replace(bundle_everywhere=False), now=NOW + DAY, policy=POLICY) is None


@pytest.mark.parametrize("phase", list(RotationPhase))
def test_an_expired_authority_is_remade_whatever_the_phase(phase):
    assert step_after(300, phase=phase) is RotationStep.REMAKE


@pytest.mark.parametrize(
    "creation", [NOW + SKEW, NOW + 3 * SKEW], ids=["as far in the future as the skew allows", "three times as far"]
)
def test_a_certificate_from_the_future_is_renewed_beyond_the_skew(creation):
    span = Span(creation, creation + 300 * DAY)
    is_valid = span.valid(NOW)
    assert is_valid == (creation == NOW + SKEW)
    assert step_after(0, authority=span) is (None if is_valid else RotationStep.REMAKE)
    for index in (0, 1):
        leaves = list(FRESH_VIEW.leaves)
        leaves[index] = span
        assert step_after(0, leaves=tuple(leaves)) is (None if is_valid else RotationStep.SIGN)


@pytest.mark.parametrize("jump", [-29, -1, 1, 29])
@pytest.mark.parametrize("phase", [RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED])
def test_a_small_clock_jump_does_not_replace_the_authority(phase, jump):
    assert step_after(jump, phase=phase) is not RotationStep.REMAKE


def test_the_tables_have_all_phases_and_steps():
    assert set(TABLE) == set(RotationPhase)
    assert set(LEADS_TO) == set(RotationStep) - {RotationStep.SIGN}
    assert {LEADS_TO[ending_step] for ending_step, _ in TABLE.values()} == set(RotationPhase) - {RotationPhase.EMPTY}
