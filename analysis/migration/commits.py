"""Makes the commits of a move: their edits and their messages.

The message is Markdown without headings, because git removes lines with `#` from a message that a person edits.
"""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, Final, get_args

from msgspec.structs import replace

from analysis.gitops import releases
from analysis.migration.consumers import consumer_edits
from analysis.migration.drivers import driver_steps
from analysis.migration.first_step import add_device_classes
from analysis.migration.preparations import add_rules, edit_node_files, label_namespaces
from analysis.migration.pull_request import Step, StepName
from analysis.migration.values_files import name_of_release
from analysis.printable import printable
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import Consumer, MigrationPlan
    from cluster.manifests import Document
    from webhook.state import State

NOT_MOVED: Final = "Not moved. Pods that request a key of a plugin that goes do not start again"
_COLUMNS: Final = 72
# What forges act on in a message: a mention of a user or a team, the number or address of an issue, a link or a picture.
_ACTED_ON: Final = re.compile(
    r"(?<!\w)@(?=\w)|#(?=\d)|(?<=/)(?:i(?=ssues/\d)|m(?=erge_requests/\d)|p(?=ull/\d))|\[(?=[^\]\n]*\]\()"
)


def pull_request(documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State) -> tuple[Step, ...]:
    """Return the steps of a plan that have edits. Each edit has the document after the step.

    `documents` are those of the tree.
    """
    # What a driver needs may be prepared although its plugin stays for now.
    everything, moving = plan.with_all(), plan.of_moving()
    prepared, switched = [
        driver_steps(documents, tree, add_rules(documents, tree, part)[1]) for part in (everything, moving)
    ]
    current = list(documents)
    steps = []
    notes: list[str] = []
    for name in get_args(StepName):
        parts = [(prepared if name == "prepare" else switched)(name, current)]
        current = parts[0].applied(current)
        if name == "prepare":
            parts += [add_rules(current, tree, everything)[0], label_namespaces(current, tree, everything)]
            parts.append(add_device_classes(current, tree, everything))
            parts.append(edit_node_files(current, tree, everything))
        if name == "switch":
            parts.append(consumer_edits(current, tree, moving, state))
        for part in parts[1:]:
            current = part.applied(current)
        edits = {edit.number: edit for part in parts for edit in part.edits}
        new = [file for part in parts for file in part.new]
        # The notes of a step that changes nothing are those of the next one.
        notes += [note for part in parts for note in part.notes]
        if edits or new:
            moved = [consumer for part in parts for consumer in part.moved]
            in_order = tuple(edit for _, edit in sorted(edits.items()))
            unmoved = [entry for part in parts for entry in part.unmoved]
            steps.append(Step(name, in_order, tuple(new), tuple(notes), tuple(moved), tuple(unmoved)))
            notes = []
    return tuple(steps)


def without_failed_edits(
    documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State
) -> tuple[MigrationPlan, tuple[Step, ...]]:
    """Keep each plugin of which a consumer cannot be edited; return the new plan and its steps.

    A plugin that the plan would keep and that a person decided to move is removed in any case.
    """
    while True:
        steps = pull_request(documents, tree, plan, state)
        unmoved = [entry for step in steps for entry in step.unmoved]
        reasons = {
            family.driver: tuple([why for consumer, why in unmoved if family.driver in consumer.drivers])
            for family in plan.of_moving().families
            if not family.reasons
        }
        if not any(reasons.values()):
            return plan, steps
        # With them, edits of consumers that use several drivers may fail.
        families = [
            replace(family, decision="stay", reasons=why) if (why := reasons.get(family.driver)) else family
            for family in plan.families
        ]
        plan = replace(plan, families=tuple(families))


def uncompared_charts(
    steps: Sequence[Step], documents: Sequence[Document], tree: Tree, uncompared: Iterable[tuple[str, str]]
) -> list[str]:
    """Return the charts whose objects were not compared, by reason: the `uncompared` releases, and the charts that the steps add."""
    after = list(documents)
    for step in steps:
        after = step.applied(after)
    charts = {(release.number, release.chart) for release in releases(documents, tree)}
    replaced = [
        name_of_release(release) for release in releases(after, tree) if (release.number, release.chart) not in charts
    ]
    added = [
        f"{obj['kind']} {obj['metadata']['name']}"
        for step in steps
        for file in step.new
        for obj in file.objects
        if obj.get("kind") in ("HelmRelease", "Application")
    ]
    return [*_grouped(uncompared), *[f"{name}: its chart is new" for name in (*replaced, *added)]]


def not_moved(steps: Sequence[Step], plan: MigrationPlan) -> list[str]:
    """Return the consumers that keep their keys, with the reasons; none if no step is a switch."""
    switch = next((step for step in steps if step.name == "switch"), None)
    if switch is None:
        return []
    moving = plan.of_moving()
    others = [entry for entry in moving.consumers if entry not in switch.moved and not moving.keeps(entry)]
    reasons = ((f"{_request(consumer)}: {consumer.why or 'see the notes'}", consumer.object) for consumer in others)
    return list(_grouped(reasons))


def message(step: Step, steps: Sequence[Step], plan: MigrationPlan, not_rendered: Sequence[str]) -> str:
    """Return the commit message of a step. `not_rendered` lists the charts and kustomizations whose objects were not compared."""
    notes = _list("Notes:", step.notes)
    match step.name:
        case "prepare":
            subject = "Prepare the move from device plugins to DRA"
            what = "This commit adds what the DRA drivers need. It changes nothing that runs."
            return _message(subject, what, *notes)
        case "tidy":
            subject = "Remove what only the device plugins used"
            what = "Merge this commit when nobody wants to go back: the releases of the plugins need what it removes."
            return _message(subject, what, *notes)
    objects = dict.fromkeys(consumer.object for consumer in step.moved)
    subject = f"Move {count_of(len(objects), 'workload')} from device plugins to DRA"
    way_back = "The way back: revert this commit alone."
    if steps[-1].name == "tidy":
        way_back += " If `tidy`, the commit after it, is merged too, revert that one first."
    claims = (
        (f"{_request(consumer)} becomes a claim of {consumer.device_class}", consumer.object) for consumer in step.moved
    )
    kept = ((_request(consumer), consumer.object) for consumer in plan.of_moving().consumers if plan.keeps(consumer))
    return _message(
        subject if step.moved else "Replace device plugins with DRA drivers",
        "Plugins, drivers, consumers and what depends on them change in one commit, because half of it is an outage.",
        *_list("Drivers:", _drivers(plan)),
        *_list("Claims instead of keys:", _grouped(claims)),
        *_list("Keys that stay, because a DeviceClass serves them by name:", _grouped(kept)),
        *_list(f"{NOT_MOVED}:", not_moved(steps, plan)),
        *_list("What has to be true before the merge:", plan.blockers),
        *_list("What is lost:", plan.lost),
        *_list("By hand:", plan.by_hand),
        *notes,
        *_list("Not rendered, so their objects were not compared:", not_rendered),
        way_back,
    )


def _drivers(plan: MigrationPlan) -> Iterator[str]:
    for family in plan.staying:
        yield f"{family.driver}: the device plugin stays"
    for family in plan.of_moving().families:
        new, sharing = family.replacement, family.sharing
        if new is not None:
            chart = (
                f"chart {new.chart} {new.version}" if new.installed is None else f"installed by {new.installed.object}"
            )
            gone = [f"{plugin.object}: {plugin.how}" for plugin in family.plugins]
            yield "; ".join((f"{family.driver}: {chart}", *gone))
        if sharing is not None:
            yield f"{family.driver}: pods share devices now: {sharing.now}; with the driver: {sharing.decision}"


def _request(consumer: Consumer) -> str:
    return f"{consumer.amount} {consumer.key}".lstrip()


def _grouped(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each string once, after the names of its objects."""
    objects: dict[str, list[str]] = {}
    for text, name in lines:
        objects.setdefault(text, []).append(name)
    for text, names in objects.items():
        yield f"{', '.join(names)}: {text}"


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a title and a list; nothing if the list is empty."""
    items = [_wrapped(line, "- ") for line in lines]
    if items:
        yield "\n".join((_wrapped(title), "", *items))


def _message(subject: str, *parts: str) -> str:
    paragraphs = [part if "\n" in part else _wrapped(part) for part in parts]
    return "\n\n".join((subject, *paragraphs)) + "\n"


def _wrapped(text: str, dash: str = "") -> str:
    indent = " " * len(dash)
    lines = wrap(
        _ACTED_ON.sub(lambda match: f"\\x{ord(match[0]):02x}", printable(text.replace("\n", " "))),
        _COLUMNS,
        initial_indent=dash,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)
