import datetime as dt

import pytest

from certs.rotation import LEADS_TO, SKEW, TABLE, Policy, RotationPhase, Span, Step, View, step

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
POLICY = Policy(authority_life=300 * DAY, leaf_life=90 * DAY, pause=dt.timedelta(minutes=10))
FRESH = View(
    RotationPhase.STEADY,
    Span(NOW, NOW + 300 * DAY),
    (Span(NOW, NOW + 90 * DAY), Span(NOW, NOW + 90 * DAY)),
    leaves_sound=True,
    since=NOW,
    bundle_everywhere=True,
)


def at(days, view=FRESH, **changes):
    return step(view._replace(**changes), now=NOW + days * DAY, policy=POLICY)


def test_an_empty_secret_needs_everything():
    assert step(View(RotationPhase.EMPTY), now=NOW, policy=POLICY) is Step.REMAKE


def test_a_fresh_pair_is_left_alone():
    assert at(0) is None
    assert at(59.9) is None


def test_a_leaf_is_renewed_at_two_thirds_of_its_life():
    assert at(60.01) is Step.SIGN


@pytest.mark.parametrize("phase", [RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED])
def test_a_missing_or_invalid_leaf_is_signed_in_every_phase(phase):
    assert at(0, phase=phase, leaves_sound=False) is Step.SIGN


def test_an_authority_past_two_thirds_is_succeeded_not_replaced():
    leaf = Span(NOW + 199 * DAY, NOW + 289 * DAY)
    assert at(199, leaves=(leaf, leaf)) is None
    assert at(200.01, leaves=(leaf, leaf)) is Step.INTRODUCE


@pytest.mark.parametrize(
    ("phase", "due"), [(RotationPhase.INTRODUCED, Step.SWITCH), (RotationPhase.SWITCHED, Step.RETIRE)]
)
def test_a_rotation_phase_lasts_until_all_clients_can_have_noticed(phase, due):
    view = FRESH._replace(phase=phase, since=NOW)
    assert step(view, now=NOW + dt.timedelta(minutes=9), policy=POLICY) is None
    assert step(view, now=NOW + dt.timedelta(minutes=10), policy=POLICY) is due
    assert step(view._replace(bundle_everywhere=False), now=NOW + DAY, policy=POLICY) is None


@pytest.mark.parametrize("phase", list(RotationPhase))
def test_an_expired_authority_is_remade_whatever_the_phase(phase):
    assert at(300, phase=phase) is Step.REMAKE


@pytest.mark.parametrize("made", [NOW + SKEW, NOW + 3 * SKEW], ids=["as far ahead as others still believe", "further"])
def test_a_certificate_from_the_future_is_renewed_beyond_the_skew(made):
    span = Span(made, made + 300 * DAY)
    believed = span.valid(NOW)
    assert believed == (made == NOW + SKEW)
    assert at(0, authority=span) is (None if believed else Step.REMAKE)
    for place in (0, 1):
        leaves = list(FRESH.leaves)
        leaves[place] = span
        assert at(0, leaves=tuple(leaves)) is (None if believed else Step.SIGN)


@pytest.mark.parametrize("jump", [-29, -1, 1, 29])
@pytest.mark.parametrize("phase", [RotationPhase.STEADY, RotationPhase.INTRODUCED, RotationPhase.SWITCHED])
def test_a_small_clock_jump_does_not_replace_the_authority(phase, jump):
    assert at(jump, phase=phase) is not Step.REMAKE


def test_the_table_covers_every_phase_and_every_step_leads_somewhere():
    assert set(TABLE) == set(RotationPhase)
    assert set(LEADS_TO) == set(Step) - {Step.SIGN}
    assert {LEADS_TO[leaving] for leaving, _ in TABLE.values()} == set(RotationPhase) - {RotationPhase.EMPTY}
