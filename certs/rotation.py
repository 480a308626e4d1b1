"""When to make, introduce, switch and retire certificates. Pure: a view of what exists goes in, one step comes out.

Theory of operation
-------------------
A webhook is trusted through a *bundle* (`caBundle` in the webhook configurations) and proves itself with a *leaf*. The two
live in different places and change at different moments, so at every moment each leaf that some replica may still
serve must be signed by an authority that each API server may already trust. Hence an authority is replaced in three
steps, with a pause between them that is longer than it takes every party to notice:

    STEADY ──introduce──▶ INTRODUCED ──switch──▶ SWITCHED ──retire──▶ STEADY
    one authority          two are trusted,       two are trusted,
                           the old one signs      the new one signs

The phase is not stored: it is what the Secret holds. `next` there means INTRODUCED, `previous` means SWITCHED, neither
means STEADY, no authority means EMPTY. So a replica killed between any two writes leaves a state the next one reads
correctly, and two replicas that step at once collide on the resourceVersion, where one loses and looks again.

The leaf is renewed in every phase on its own clock, at two thirds of its life; renewal is polled, because a paused
container misses timers. What is broken or expired is not rotated but remade, and the certificate of the authority that went
before, if it can still be read, is trusted for a while longer, as after a switch.

Clocks jump. Whatever is made is valid from `SKEW` before it was made, so a clock that is wrong by less than that, ours or
the API server's, ahead or behind, makes nothing that the other would not believe. What was made further in the future
than that is believed by no client and is made again.
"""

from __future__ import annotations

import datetime as dt
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# How long before the moment it is made a certificate is valid, for clocks that differ.
SKEW = dt.timedelta(days=30)


class Span(NamedTuple):
    """The life of a certificate, from when it was made; it is valid `SKEW` longer at its beginning."""

    start: dt.datetime
    end: dt.datetime

    def part(self, fraction: float) -> dt.datetime:
        """The instant at which this fraction of the life is over."""
        return self.start + (self.end - self.start) * fraction

    def valid(self, now: dt.datetime) -> bool:
        """Whether the certificate can be believed at an instant."""
        return self.start - SKEW <= now < self.end


class Phase(StrEnum):
    EMPTY = "empty"
    STEADY = "steady"
    INTRODUCED = "introduced"
    SWITCHED = "switched"


class Step(Enum):
    """One change to the Secret."""

    REMAKE = "make a new authority and a leaf"
    SIGN = "sign each leaf that is due anew, with the authority that signs now"
    INTRODUCE = "make the next authority and trust both"
    SWITCH = "sign a leaf with the next authority and keep trusting the old one"
    RETIRE = "stop trusting the old authority"


class Policy(NamedTuple):
    """How long things live. `pause` must exceed the time in which every replica and API server notices a change."""

    authority_life: dt.timedelta = dt.timedelta(days=365 * 2)
    leaf_life: dt.timedelta = dt.timedelta(days=90)
    pause: dt.timedelta = dt.timedelta(minutes=10)
    # The part of its life after which a certificate is succeeded.
    renew_at: float = 2 / 3


class View(NamedTuple):
    """What exists, as far as a decision needs it."""

    phase: Phase
    authority: Span | None = None
    # The lives of the leaves that are there.
    leaves: tuple[Span, ...] = ()
    # Each leaf that there should be is signed by the authority that signs now, and names what it is for.
    leaves_sound: bool = False
    # When the Secret last changed phase.
    since: dt.datetime | None = None
    # Every webhook configuration carries the whole bundle.
    bundle_everywhere: bool = False


def step(view: View, *, now: dt.datetime, policy: Policy) -> Step | None:
    """Say the one thing to do now, or None."""
    authority = view.authority
    if authority is None or not authority.valid(now):
        return Step.REMAKE
    if not view.leaves_sound or any(is_due(leaf, now, policy) for leaf in view.leaves):
        return Step.SIGN
    next_step, due = TABLE[view.phase]
    if not due(view, now, policy):
        return None
    return next_step


def is_due(leaf: Span, now: dt.datetime, policy: Policy) -> bool:
    """Say whether a leaf is to be signed anew: it cannot be believed now, or will not be for long."""
    return not leaf.valid(now) or leaf.part(policy.renew_at) <= now


def _has_aged(view: View, now: dt.datetime, policy: Policy) -> bool:
    return view.authority is not None and view.authority.part(policy.renew_at) <= now


def _has_settled(view: View, now: dt.datetime, policy: Policy) -> bool:
    if not view.bundle_everywhere:
        return False
    # A phase that began in the future began while a clock was wrong: it is not known when, and the pause is kept from now on.
    return view.since is None or view.since + policy.pause <= now


# phase: (the step that leaves it, when it is due)
TABLE: dict[Phase, tuple[Step, Callable[[View, dt.datetime, Policy], bool]]] = {
    Phase.EMPTY: (Step.REMAKE, lambda *_: True),
    Phase.STEADY: (Step.INTRODUCE, _has_aged),
    Phase.INTRODUCED: (Step.SWITCH, _has_settled),
    Phase.SWITCHED: (Step.RETIRE, _has_settled),
}

# step: the phase it leads to (SIGN stays where it is; REMAKE leads to STEADY where nothing was before)
LEADS_TO = {
    Step.REMAKE: Phase.SWITCHED,
    Step.INTRODUCE: Phase.INTRODUCED,
    Step.SWITCH: Phase.SWITCHED,
    Step.RETIRE: Phase.STEADY,
}
