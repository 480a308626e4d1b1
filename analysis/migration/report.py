"""Makes the report of a plan, and compares two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec.structs import replace

from analysis.errors import Broken
from analysis.migration.families import lost, stops
from analysis.migration.plan import Verdict
from analysis.report import CodeSpan, Report, Rows, Screen
from dra.raw import Object, items, strings
from dra.texts import count_of, joined, list_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from analysis.migration.plan import Consumer, MigrationPlan
    from analysis.report import Part

_NAMED = 5
_DECISIONS = {
    "move": "`migrate pr` replaces the plugin, and each consumer with the verdict `edit` gets a claim",
    "stay": "the plugin stays for now, and `migrate pr` only prepares the move",
}
# By part of a plan: the fields that identify an entry.
_IDENTITY = {"families": ("driver",), "consumers": ("object", "place", "key"), "follow": ("object", "place")}
# Decisions of a person; a difference here is not a change of the tree.
_DECIDED = frozenset(("decision", "verdict", "line", "because"))


def first_lines(plan: MigrationPlan, moved: Collection[Consumer] | None = None) -> list[str]:
    """Return whether to move now, what prevents the move, and which consumers lose devices. `moved` are the consumers that the commits move, if known."""
    if plan.is_done:
        return [f"Done: {', '.join(family.driver for family in plan.families)}"]
    staying = [family.driver for family in plan.staying]
    moving = [family.driver for family in plan.families if family.decision == "move"]
    decisions = [f"move now: {', '.join(moving)}"] * bool(moving)
    decisions += [f"do not move now: {', '.join(staying)}"] * bool(staying)
    reasons = plan.why_staying
    more = f" (and {len(reasons) - 1} more below)" if len(reasons) > 1 else ""
    losses: dict[str, list[str]] = {}
    for consumer in plan.consumers:
        stays = not set(consumer.drivers).intersection(moving)
        if plan.keeps(consumer):
            continue
        keeps_key = consumer.verdict != "edit" or (moved is not None and not stays and consumer not in moved)
        # A consumer without an amount has no device from the plugin.
        if keeps_key and consumer.amount and consumer.drivers:
            losers = losses.setdefault("would lose devices" if stays else "loses devices", [])
            losers.append(f"{consumer.object} ({consumer.key})")
    lost = [f"{what}: {list_first(list(dict.fromkeys(losers)), _NAMED)}" for what, losers in losses.items()]
    lines = (
        "; ".join(decisions),
        f"stops it: {reasons[0]}{more}" if reasons else "stops it: nothing in the tree",
        "; ".join(lost) or "loses devices: no consumer",
    )
    return [line[:1].upper() + line[1:] for line in lines]


def tasks(plan: MigrationPlan) -> Iterator[str]:
    """Yield the manual tasks in order."""
    for family in plan.families:
        if family.sharing is not None:
            choices = " or ".join(family.sharing.choices)
            yield f"decide `sharing.decision` of {family.driver}: {choices} (now {family.sharing.decision})"
    first_steps = [family.first_step for family in plan.families if family.first_step is not None]
    yield from (f"{step.what}: {list_first(step.objects, _NAMED)}" for step in first_steps if step.state != "in force")
    prepared = {name for step in first_steps if step.state == "prepare" for name in step.objects}
    for consumer in plan.consumers:
        if consumer.verdict == "by hand" and consumer.object not in prepared and not plan.keeps(consumer):
            yield f"edit {consumer.object} by hand, as its row below tells: {consumer.file}:{consumer.line}"
    yield from (f"check: {line}" for line in plan.blockers)
    yield "write the branch: drawbridge migrate plan > migration.yaml; drawbridge migrate pr --plan migration.yaml"
    if plan.of_moving().families:
        yield from plan.by_hand


def report(plan: MigrationPlan) -> Report:
    """Make the text report: whether to move, then the tasks, then the details."""
    parts: list[Part] = []
    if plan.families:
        in_order = [f"{number}. {task}" for number, task in enumerate(dict.fromkeys(tasks(plan)), 1)]
        parts = [Screen(in_order, "To do")]
    for family in plan.families:
        head = f"{family.driver}: {list_first(family.keys, _NAMED) or 'no key is requested'}"
        classes = f", DeviceClass {' or '.join(family.device_classes)}" if family.device_classes else ""
        rows: list[tuple[str, str]] = []
        rows.append(("decide", f"{family.decision}: {_DECISIONS[family.decision]}"))
        rows += [("because", reason) for reason in family.reasons]
        for plugin in family.plugins:
            chart = f"chart {plugin.chart} {plugin.version}, " if plugin.chart else ""
            rows.append(("now", f"{plugin.object} ({chart}{plugin.file}:{plugin.line}): {plugin.how}"))
        if new := family.replacement:
            place = f"in the tree already: {new.installed.file}:{new.installed.line}" if new.installed else new.url
            rows.append(("driver", f"chart {new.chart} {new.version} ({place}){classes}"))
            rows += [("note", note) for note in new.notes]
        if first := family.first_step:
            rows.append(("first", f"{first.what}: {list_first(first.objects, _NAMED)}"))
            rows += [("apply", msgspec.json.encode(obj).decode()) for obj in first.device_classes]
            rows.append(("but", first.limits))
        if sharing := family.sharing:
            rows.append(("sharing", sharing.now))
            rows.append(("share as", f"{sharing.decision}: {sharing.because}"))
            rows += [("choice", f"{name}: {meaning}") for name, meaning in sharing.choices.items()]
        parts.append(Rows(("", ""), rows, head))
    parts.append(Rows(("Verdict", "Object", "Requests", "Place", "Why"), list(_consumers(plan)), "Consumers"))
    follow = [
        (follower.object, CodeSpan(f"{follower.file}:{follower.line}"), follower.what)
        for follower in plan.of_moving().follow
    ]
    parts.append(Rows(("Object", "Place", "What"), follow, "Also to edit"))
    for title, lines in (
        ("What is lost", plan.lost),
        ("Skipped", plan.skipped),
    ):
        if lines:
            parts.append(Screen([f"- {line}" for line in lines], title))
    headline = [*(first_lines(plan) if plan.families else ()), summary(plan)]
    return Report("drawbridge migrate plan", parts, "\n".join(headline))


def _consumers(plan: MigrationPlan) -> Iterator[tuple[str, str, str, CodeSpan, str]]:
    """Yield the consumer rows; print each reason once."""
    first: dict[str, str] = {}
    for consumer in plan.consumers:
        place = f"{consumer.file}:{consumer.line}"
        why = f"same reason as {first[consumer.why]}" if consumer.why in first else consumer.why
        if consumer.why:
            first.setdefault(consumer.why, place)
        requests = joined(consumer.key, consumer.amount)
        yield consumer.verdict, consumer.object, requests, CodeSpan(place), why


def summary(plan: MigrationPlan) -> str:
    """Return a one-line summary of the plan."""
    if not plan.families and not plan.consumers:
        if plan.skipped:
            places = count_of(len(plan.skipped), "skipped place")
            return f"unknown: {places} may request devices or run a device plugin; nothing else of the tree does"
        return "nothing to move: no build of the tree requests a device by a legacy key, and none installs a known device plugin"
    verdicts = [consumer.verdict for consumer in plan.consumers]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in get_args(Verdict) if verdict in verdicts]
    consumers = count_of(len(verdicts), "consumer") + (f" ({', '.join(counts)})" if counts else "")
    decisions = count_of(sum(family.sharing is not None for family in plan.families), "decision")
    return f"{consumers}, {count_of(len(plan.follow), 'follower')}, {decisions} about sharing"


def done(before: Object) -> str:
    """Return the sentence about a tree in which a plan is done."""
    keys = {str(key) for family in items(before, "families") for key in strings(family, "keys")}
    of_keys = list_first(sorted(keys), _NAMED) or "a device by a legacy key"
    return f"done: no build of the tree requests {of_keys} or installs its device plugin"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between a plan and the tree's current plan, except a person's decisions."""
    before, now = _without_decisions(before), _without_decisions(now)
    for part in dict.fromkeys((*before, *now)):
        old, new = (_entries(part, of_plan.get(part)) for of_plan in (before, now))
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                word = "no longer" if name not in new else "changed" if name in old else "new"
                yield f"{part}: {word}: {name}"


def with_decisions(plan: MigrationPlan, decided: MigrationPlan) -> MigrationPlan:
    """Copy the decisions from another plan of the same tree. Raises Broken if a decision is not among the choices."""
    verdicts = {(consumer.object, consumer.place, consumer.key): consumer.verdict for consumer in decided.consumers}
    decisions = {family.driver: family.sharing.decision for family in decided.families if family.sharing is not None}
    moves = {family.driver: family.decision for family in decided.families}
    for family in plan.families:
        sharing = decisions.get(family.driver)
        is_open = sharing == "undecided" and moves[family.driver] == "stay"
        if family.sharing is not None and sharing not in family.sharing.choices and not is_open:
            choices = ", ".join(family.sharing.choices)
            raise Broken(f"{family.driver}: `sharing.decision` cannot be `{sharing}`", f"decide for one of {choices}")
    families = tuple(
        replace(
            family,
            decision=moves[family.driver],
            sharing=family.sharing and replace(family.sharing, decision=decisions[family.driver]),
        )
        for family in plan.families
    )
    proposed = list(stops(plan.families))
    return replace(
        plan,
        consumers=tuple(
            replace(consumer, verdict=verdicts[consumer.object, consumer.place, consumer.key])
            for consumer in plan.consumers
        ),
        families=families,
        lost=tuple(lost(families, plan.follow)),
        by_hand=(*[line for line in plan.by_hand if line not in proposed], *stops(families)),
    )


def _entries(part: str, value: Any) -> dict[str, Any]:
    """Return the entries of a plan part, keyed by their identifying fields."""
    fields = _IDENTITY.get(part, ())
    return {
        " ".join(str(entry.get(field)) for field in fields) if fields and isinstance(entry, dict) else str(entry): entry
        for entry in (value if isinstance(value, list) else [value])
    }


def _without_decisions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_decisions(member) for name, member in value.items() if name not in _DECIDED}
    return [_without_decisions(item) for item in value] if isinstance(value, list) else value
