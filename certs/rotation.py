"""Decides when to create, introduce, switch and retire certificates: `step` returns the next step for a view of the Secrets.

Theory of operation
-------------------
API servers trust the CAs in a *bundle* (`caBundle` in the webhook configurations), and the webhook serves with a certificate that a CA has
signed, its *leaf*. Bundle and leaf are in different objects and change at different times. So the CA of every leaf that a replica may still
serve must already be in the bundle of every API server. Therefore a CA is replaced in three steps, with a pause after each step in which
every replica and API server notices the change:

    STEADY ──introduce──▶ INTRODUCED ──switch──▶ SWITCHED ──retire──▶ STEADY
    one authority          two are trusted,       two are trusted,
                           the old one signs      the new one signs

The phase follows from the content of the Secret: `next` means INTRODUCED, `previous` means SWITCHED, neither means STEADY, and no CA means
EMPTY. So a replica that is killed between two writes leaves a valid state. If two replicas take a step at the same time, the resourceVersion
makes the write of one fail, and this replica reads again.

The leaf is renewed in every phase at two thirds of its life. The caller polls, because a paused container misses timers. A broken or
expired CA is replaced at once, without these steps. If the old CA's certificate is readable, API servers trust it for a while, as after a
switch.

Clocks can be wrong. Certificates are valid from `SKEW` before their creation. So a clock that is wrong by less than `SKEW`, here or in an
API server, makes no certificate invalid. A certificate that was created by a clock further in the future is created again, because no
client accepts it yet.
"""

from __future__ import annotations

import datetime as dt
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# How long before its creation a certificate becomes valid, for clocks that differ.
SKEW = dt.timedelta(days=30)


class Span(NamedTuple):
    """The lifetime of a certificate since its creation; it is valid from `SKEW` before that."""

    start: dt.datetime
    end: dt.datetime

    def part(self, fraction: float) -> dt.datetime:
        """Return the time at which this fraction of the lifetime is over."""
        return self.start + (self.end - self.start) * fraction

    def valid(self, now: dt.datetime) -> bool:
        """Report whether the certificate is valid."""
        return self.start - SKEW <= now < self.end


class RotationPhase(StrEnum):
    EMPTY = "empty"
    STEADY = "steady"
    INTRODUCED = "introduced"
    SWITCHED = "switched"


class RotationStep(Enum):
    """One change to the Secret."""

    REMAKE = "make a new authority and a leaf"
    SIGN = "let the current authority sign each due leaf again"
    INTRODUCE = "make the next authority and trust both"
    SWITCH = "sign a leaf with the next authority and keep trusting the old one"
    RETIRE = "stop trusting the old authority"


class Policy(NamedTuple):
    """Lifetimes. `pause` must exceed the time in which every replica and API server notices a change."""

    authority_life: dt.timedelta = dt.timedelta(days=365 * 2)
    leaf_life: dt.timedelta = dt.timedelta(days=90)
    pause: dt.timedelta = dt.timedelta(minutes=10)
    renew_at: float = 2 / 3  # the fraction of its life after which a certificate is replaced


class View(NamedTuple):
    """What `step` needs to know of the Secrets and the webhook configurations."""

    phase: RotationPhase
    authority: Span | None = None
    leaves: tuple[Span, ...] = ()
    leaves_sound: bool = False  # all wanted leaves exist, with the right names, signed by the current CA
    since: dt.datetime | None = None  # when the phase last changed
    bundle_everywhere: bool = False  # every webhook configuration has the whole bundle


def step(view: View, *, now: dt.datetime, policy: Policy) -> RotationStep | None:
    """Return the next step, if one is due."""
    authority = view.authority
    if authority is None or not authority.valid(now):
        return RotationStep.REMAKE
    if not view.leaves_sound or any(is_due(leaf, now, policy) for leaf in view.leaves):
        return RotationStep.SIGN
    next_step, due = TABLE[view.phase]
    if not due(view, now, policy):
        return None
    return next_step


def is_due(leaf: Span, now: dt.datetime, policy: Policy) -> bool:
    """Report whether a leaf must be signed again: it is invalid, or will expire soon."""
    return not leaf.valid(now) or leaf.part(policy.renew_at) <= now


def _has_aged(view: View, now: dt.datetime, policy: Policy) -> bool:
    return view.authority is not None and view.authority.part(policy.renew_at) <= now


def _has_settled(view: View, now: dt.datetime, policy: Policy) -> bool:
    if not view.bundle_everywhere:
        return False
    # If `since` is in the future, a clock was wrong. The pause then ends later, which is safe.
    return view.since is None or view.since + policy.pause <= now


# phase: (the step that ends it, whether that step is due)
TABLE: dict[RotationPhase, tuple[RotationStep, Callable[[View, dt.datetime, Policy], bool]]] = {
    RotationPhase.EMPTY: (RotationStep.REMAKE, lambda *_: True),
    RotationPhase.STEADY: (RotationStep.INTRODUCE, _has_aged),
    RotationPhase.INTRODUCED: (RotationStep.SWITCH, _has_settled),
    RotationPhase.SWITCHED: (RotationStep.RETIRE, _has_settled),
}

# step: the phase it leads to (SIGN keeps the phase; REMAKE leads to STEADY if there was no CA)
LEADS_TO = {
    RotationStep.REMAKE: RotationPhase.SWITCHED,
    RotationStep.INTRODUCE: RotationPhase.INTRODUCED,
    RotationStep.SWITCH: RotationPhase.SWITCHED,
    RotationStep.RETIRE: RotationPhase.STEADY,
}
