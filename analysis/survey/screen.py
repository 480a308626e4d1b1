"""A survey for a screen: namespaces and workloads first, then what to decide, what is in the way, and the devices. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from analysis.survey.overview import MoveReason
from dra.texts import count_of, joined, list_first
from rendering import formats
from rendering.terminal import coloured, columns_of, fit, printable
from webhook.dialects import Outcome
from webhook.translate import decides_outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.survey.overview import Asking, Overview
    from analysis.survey.pools import PoolTables
    from analysis.survey.verdicts import Key

_NAMED: Final = 5  # nodes that are named, of those in one place
_SHOWN: Final = 25  # workloads of a namespace that are listed one by one
_WIDTH: Final = max(map(len, Outcome))
OWN_CLAIMS: Final = "own claims"  # in place of an outcome
_COLOURS: Final = {
    OWN_CLAIMS: "green",
    Outcome.TRANSLATED: "green",
    Outcome.APPROXIMATED: "yellow",
    Outcome.SERVED: "green",
    Outcome.PARTLY: "yellow",
    Outcome.LEFT: "yellow",
    Outcome.UNKNOWN: "red",
    Outcome.REFUSED: "red",
}
OUTCOME_TEXTS: Final = {
    OWN_CLAIMS: "have no keys, but claims of their own",
    Outcome.TRANSLATED: "claims replace all their keys",
    Outcome.APPROXIMATED: "claims replace all their keys, and differ in something",
    Outcome.SERVED: "need no change: a DeviceClass serves their keys",
    Outcome.PARTLY: "claims replace some of their keys",
    Outcome.LEFT: "keep their keys, for the reasons below",
    Outcome.UNKNOWN: "have a key that drawbridge does not recognise",
    Outcome.REFUSED: "would be refused",
}
# Where a node stands on its way from a device plugin to a driver, in this order.
SIDE_TEXTS: Final = {
    "plugin": "hand it out",
    "both": "hand it out and publish it",
    "halfway": "have none left and publish nothing",
    "driver": "publish it",
    "neither": "do neither",
}


def screen(overview: Overview, *, columns: int | None, wide: bool, colour: bool) -> Iterator[str]:
    """Write the lines of a survey; without columns they are as long as they need to be."""

    def paint(text: str, hue: str) -> str:
        return coloured(text, hue) if colour else text

    server = f"Kubernetes {printable(overview.server)}: " if overview.server else ""
    yield f"{server}{count_of(overview.objects, 'object')} read, {count_of(overview.pods, 'living pod')} among them"
    if not overview.workloads:
        yield "no workload requests a device"
    else:
        yield f"{count_of(len(overview.workloads), 'workload')} with devices:"
        for outcome, number, meaning in totals(overview):
            yield f"  {number:>6,} {paint(outcome.ljust(_WIDTH), _COLOURS[outcome])} {meaning}"
    for namespace, group in groupby(overview.workloads, key=lambda one: one.namespace):
        yield ""
        mode = overview.modes.get(namespace, "")
        in_mode = f"  (mode {mode})" if mode else ""
        yield f"{paint(printable(namespace), 'bold')}{in_mode}"
        yield from _table(list(group), columns, colour=colour, wide=wide)
    if overview.reasons:
        yield from ("", paint("To decide", "bold"))
        for reason in overview.reasons:
            concerned = f"{count_of(reason.workloads, 'workload')}, {count_of(reason.pods, 'pod')}"
            code = f" [{reason.code}]" if reason.code else ""
            cause = printable(joined(reason.key, why(reason)))
            yield f"  {reason.outcome}: {cause}{code} ({concerned})"
            if reason.remedy:
                yield f"      {printable(reason.remedy)}"
    for title, lines in network_tables(overview.network):
        yield from ("", paint(title, "bold"))
        yield from map(printable, lines)
    if overview.obstacles:
        yield from ("", paint("In the way", "bold"))
        for line in formats.table(formats.by_object(overview.obstacles)).lines:
            yield f"  {printable(line)}" if line else ""
    if overview.plugins or overview.drivers:
        yield from ("", paint("Devices", "bold"))
    for plugin in overview.plugins:
        used = f"{plugin.moving:,} used by pods that move, {plugin.staying:,} by pods that stay"
        after = f"{plugin.freed:,} freed, {plugin.stranded:,} stranded alongside pods that stay"
        yield f"  {printable(plugin.key)}: {plugin.devices:,} on {count_of(plugin.nodes, 'node')}; {used}; {after}"
    for driver in overview.drivers:
        yield f"  driver {printable(driver.driver)}: {driver.devices:,} on {count_of(driver.nodes, 'node')}"
    for side in overview.sides if overview.plugins or overview.drivers else ():
        groups = [(meaning, nodes) for name, meaning in SIDE_TEXTS.items() if (nodes := getattr(side, name))]
        parts = "; ".join(f"{len(nodes):,} {meaning}" for meaning, nodes in groups)
        yield f"  {printable(side.key)}, node by node: {parts}"
        for meaning, nodes in groups:
            yield f"      {meaning}: {printable(list_first(nodes, len(nodes) if wide else _NAMED))}"
    if overview.unread:
        yield from ("", paint("Not read, so this survey is not whole", "bold"))
        for unread in overview.unread:
            yield f"  {printable(unread.kind)}: {printable(unread.reason)}"


def why(decision: Key | MoveReason) -> str:
    """Say why a key is not simply translated, and until when it is left."""
    stays = f"the object keeps it, and its pods get claims at the webhook: {decision.stays}" if decision.stays else ""
    detail = decision.detail if isinstance(decision, MoveReason) else decision.reason
    return "; ".join(filter(None, (stays, detail, f"until {decision.until}" if decision.until else "")))


def totals(overview: Overview) -> Iterator[tuple[str, int, str]]:
    """Count the workloads of each outcome, with its meaning; those that run on claims already, keep their keys in the object, or are left for a time."""
    for outcome in OUTCOME_TEXTS:
        workloads = [one for one in overview.workloads if (one.outcome or OWN_CLAIMS) == outcome]
        if not workloads:
            continue
        pods, moved = sum(one.pods for one in workloads), sum(one.moved for one in workloads)
        enforced = Counter(one.would for one in workloads if one.would)
        stays = sum(any(key.stays for key in one.keys) for one in workloads)
        until = sum(any(key.until for key in one.keys) for one in workloads)
        notes = [
            count_of(pods, "pod"),
            f"{moved:,} on claims already" if moved else "",
            f"{stays:,} by the webhook alone" if stays else "",
            f"{until:,} until the cluster is ready" if until else "",
            *[f"{number:,} would be {would} in mode enforce" for would, number in enforced.items()],
        ]
        yield outcome, len(workloads), f"{OUTCOME_TEXTS[outcome]} ({', '.join(filter(None, notes))})"


def network_tables(network: PoolTables) -> Iterator[tuple[str, list[str]]]:
    """Write what can be declared for pools of network devices, each part with its title."""
    if network.pools:
        yield "Pools of network devices", [f"{name}: {selection}" for name, selection in network.pools.items()]
    if network.configuration:
        yield (
            "A configuration that claims these devices by what their drivers publish",
            network.configuration.splitlines(),
        )
    if network.driver_objects:
        yield (
            "Or objects by which the SR-IOV driver publishes the names, for Multus",
            network.driver_objects.splitlines(),
        )
        yield "with this configuration", network.driver_configuration.splitlines()


def _table(workloads: Sequence[Asking], columns: int | None, *, colour: bool, wide: bool) -> Iterator[str]:
    shown = workloads if wide else workloads[:_SHOWN]
    times = Counter((one.kind, one.name) for one in shown)
    names = [
        printable(f"{one.kind}/{one.name}{f' ({one.file})' if times[one.kind, one.name] > 1 else ''}") for one in shown
    ]
    longest = max(map(columns_of, names))
    if columns:
        longest = min(longest, columns // 2)
    for one, name in zip(shown, names, strict=True):
        # Each key once: two containers may ask for it.
        amounts_by_key: dict[str, list[str]] = {}
        listed: set[tuple[str, str]] = set()
        for key in [each for each in one.keys if decides_outcome(each)] or one.keys:
            amounts = amounts_by_key.setdefault(key.key, [])
            container_key = key.container, key.key
            if key.amount and container_key not in listed:
                amounts.append(key.amount)
            listed.add(container_key)
        key_texts = [f"{key}={'+'.join(amounts)}" if amounts else key for key, amounts in amounts_by_key.items() if key]
        would = f"would be {one.would}: " if one.would else ""
        keys = would + printable(", ".join(key_texts))
        outcome = (one.outcome or OWN_CLAIMS).ljust(_WIDTH)
        middle = f"{fit(name, longest)} {f'{one.running}/{one.pods}'.rjust(7)}"
        if columns:
            keys = fit(keys, max(columns - columns_of(f"  {outcome} {middle}  "), 10))
        painted = coloured(outcome, _COLOURS[outcome.rstrip()]) if colour else outcome
        yield f"  {painted} {middle}  {keys}".rstrip()
        if not wide:
            continue
        for key in one.keys:
            where = printable(joined(key.container or "pod", key.key))
            detail = printable(f"  {reason}" if (reason := why(key)) else "")
            code = f" [{key.code}]" if key.code else ""
            yield f"      {key.outcome:<{_WIDTH}} {where}{detail}{code}"
            if key.remedy:
                yield f"       {'':<{_WIDTH}}{printable(key.remedy)}"
        for warning in one.warnings:
            yield f"      {printable(warning)}"
    left = len(workloads) - len(shown)
    if left:
        yield f"  ... and {left:,} more, which `-o wide`, csv, json and html list"
