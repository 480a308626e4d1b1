"""Makes a report of a plan, and compares two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from analysis.errors import Broken
from analysis.migration.families import lost, stops
from analysis.migration.plan import Verdict
from analysis.report import CodeSpan, Report, Rows, Screen
from dra.texts import count_of, joined, list_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analysis.migration.plan import MigrationPlan
    from analysis.report import Part

_NAMED = 5
_DECISIONS = {
    "move": "`migrate pr` replaces the plugin, and all requests of the tree become claims",
    "stay": "the plugin stays for now, and `migrate pr` only prepares the move",
}
# By part of a plan: the fields that tell its entries apart.
_IDENTITY = {"families": ("driver",), "consumers": ("object", "place", "key"), "follow": ("object", "place")}
# What a person decides: a difference is no change of the tree.
_DECIDED = frozenset(("decision", "verdict", "line", "because"))


def report(plan: MigrationPlan) -> Report:
    """Make the report for people: decisions first, then what is edited, and what is done by hand."""
    parts: list[Part] = []
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
    parts.append(Rows(("Object", "Place", "What"), follow, "What follows"))
    for title, lines in (
        ("In the way", plan.blockers),
        ("What is lost", plan.lost),
        ("By hand", plan.by_hand),
        ("Skipped", plan.skipped),
    ):
        if lines:
            parts.append(Screen([f"- {line}" for line in lines], title))
    return Report("drawbridge migrate plan", parts, summary(plan))


def _consumers(plan: MigrationPlan) -> Iterator[tuple[str, str, str, CodeSpan, str]]:
    """Yield the rows of consumers, each reason only once."""
    first: dict[str, str] = {}
    for consumer in plan.consumers:
        place = f"{consumer.file}:{consumer.line}"
        why = f"same reason as {first[consumer.why]}" if consumer.why in first else consumer.why
        if consumer.why:
            first.setdefault(consumer.why, place)
        requests = joined(consumer.key, consumer.amount)
        yield consumer.verdict, consumer.object, requests, CodeSpan(place), why


def summary(plan: MigrationPlan) -> str:
    """Return the plan in a line."""
    if not plan.families and not plan.consumers:
        nothing = "nothing to move: no build of the tree requests a device by a legacy key, and none installs a known device plugin"
        return f"{nothing}; look at what was skipped" if plan.skipped else nothing
    verdicts = [consumer.verdict for consumer in plan.consumers]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in get_args(Verdict) if verdict in verdicts]
    consumers = count_of(len(verdicts), "consumer") + (f" ({', '.join(counts)})" if counts else "")
    decisions = count_of(sum(family.sharing is not None for family in plan.families), "decision")
    return f"{consumers}, {count_of(len(plan.follow), 'follower')}, {decisions} about sharing"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between a plan and the plan of the tree now, without what a person decides."""
    before, now = _without_decisions(before), _without_decisions(now)
    for part in dict.fromkeys((*before, *now)):
        old, new = before.get(part), now.get(part)
        if part in _IDENTITY:
            yield from _entries(part, _by_identity(part, old), _by_identity(part, new))
        elif isinstance(old, list) or isinstance(new, list):
            yield from (f"{part}: no longer: {line}" for line in old or () if line not in (new or ()))
            yield from (f"{part}: new: {line}" for line in new or () if line not in (old or ()))
        elif old != new:
            yield f"{part}: {old!r} became {new!r}"


def with_decisions(plan: MigrationPlan, decided: MigrationPlan) -> MigrationPlan:
    """Return a plan with the decisions of another plan of the same tree. Raises Broken if one is none of its choices."""
    verdicts = {(consumer.object, consumer.place, consumer.key): consumer.verdict for consumer in decided.consumers}
    decisions = {family.driver: family.sharing.decision for family in decided.families if family.sharing is not None}
    moves = {family.driver: family.decision for family in decided.families}
    for family in plan.families:
        if family.sharing is not None and decisions[family.driver] not in family.sharing.choices:
            choices = ", ".join(family.sharing.choices)
            raise Broken(
                f"{family.driver}: the driver has no `{decisions[family.driver]}`", f"decide for one of {choices}"
            )
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


def _by_identity(part: str, entries: Any) -> dict[str, Mapping[str, Any]]:
    named: dict[str, Mapping[str, Any]] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            named[" ".join(str(entry.get(field)) for field in _IDENTITY[part])] = entry
    return named


def _entries(part: str, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            yield f"{part}: no longer: {name}"
        elif name not in old:
            yield f"{part}: new: {name}"
        else:
            all_fields = dict.fromkeys((*old[name], *new[name]))
            if fields := [field for field in all_fields if old[name].get(field) != new[name].get(field)]:
                yield f"{part}: {name}: changed: {', '.join(fields)}"


def _without_decisions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_decisions(member) for name, member in value.items() if name not in _DECIDED}
    return [_without_decisions(item) for item in value] if isinstance(value, list) else value
