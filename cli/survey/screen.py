"""A survey for a screen: namespaces and workloads first, then what to decide, what is in the way, and the devices. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cli.survey.verdicts import Outlook
from cli.terminal import coloured, columns_of, fit, printable
from webhook.state import mistake_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cli.survey.overview import Asking, Overview
    from webhook.sides import Standing

    Paint = Callable[[str, str], str]

_NAMED: Final = 5  # nodes that are named, of those that stand alike
_SHOWN: Final = 25  # workloads of a namespace that are listed one by one
_COLOURS: Final = {
    Outlook.MOVED: "green",
    Outlook.MOVES: "green",
    Outlook.SERVED: "green",
    Outlook.DIFFERS: "yellow",
    Outlook.WAITS: "yellow",
    Outlook.STAYS: "red",
    Outlook.UNCLEAR: "red",
    Outlook.REFUSED: "red",
}
SAID: Final = {
    Outlook.MOVED: "on claims already",
    Outlook.MOVES: "would move",
    Outlook.DIFFERS: "would move, and differ in something",
    Outlook.SERVED: "need no change: a DeviceClass serves their key",
    Outlook.WAITS: "wait for the cluster, and would move then",
    Outlook.STAYS: "stay with their device plugin",
    Outlook.UNCLEAR: "have something that is not understood",
    Outlook.REFUSED: "would be refused",
}


def screen(seen: Overview, *, columns: int | None, wide: bool, colour: bool) -> Iterator[str]:
    """Write the lines of a survey; without columns they are as long as they need to be."""
    paint = coloured if colour else _plain
    yield from _head(seen, paint)
    for namespace, group in groupby(seen.workloads, key=_namespace):
        yield ""
        title = paint(printable(namespace), "bold")
        mode = seen.modes.get(namespace, "")
        note = ", which is none: what would happen is told there, and nothing done" if mistake_of(mode) else ""
        yield f"{title}  (mode {printable(mode)}{note})"
        workloads = list(group)
        yield from _table(workloads, columns, paint, wide=wide)
    yield from _reasons(seen, paint)
    yield from _obstacles(seen, paint)
    yield from _devices(seen, paint, wide=wide)
    yield from _unread(seen, paint)


def _namespace(one: Asking) -> str:
    return one.namespace


def _plain(text: str, colour: str) -> str:
    del colour
    return text


def count(number: int, word: str) -> str:
    """A number with what it counts, thousands apart."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _head(seen: Overview, paint: Paint) -> Iterator[str]:
    read = f"{count(seen.objects, 'object')} read, {count(seen.pods, 'living pod')} among them"
    server = f"Kubernetes {printable(seen.server)}: " if seen.server else ""
    yield f"{server}{read}"
    if not seen.workloads:
        yield "nobody asks for a device"
        return
    yield f"{count(len(seen.workloads), 'workload')} with devices:"
    pods: Counter[Outlook] = Counter()
    for one in seen.workloads:
        pods[one.fate] += one.pods
    for fate in Outlook:
        if number := seen.fates[fate]:
            said = f"{SAID[fate]} ({count(pods[fate], 'pod')})"
            yield f"  {number:>6,} {paint(fate.value.ljust(8), _COLOURS[fate])} {said}"


def _table(workloads: Sequence[Asking], columns: int | None, paint: Paint, *, wide: bool) -> Iterator[str]:
    shown = workloads if wide else workloads[:_SHOWN]
    names = [printable(f"{one.kind}/{one.name}") for one in shown]
    longest = max(map(columns_of, names))
    if columns:
        longest = min(longest, columns // 2)
    for one, name in zip(shown, names, strict=True):
        yield _line(one, fit(name, longest), columns, paint)
        if wide:
            yield from _details(one)
    left = len(workloads) - len(shown)
    if left:
        yield f"  ... and {left:,} more, which `-o wide`, csv, json and html list"


def _line(one: Asking, name: str, columns: int | None, paint: Paint) -> str:
    fate = one.fate.value.ljust(8)
    pods = f"{one.running}/{one.pods}".rjust(7)
    keys = printable(_keys(one))
    if columns:
        taken = columns_of(f"  {fate} {name} {pods}  ")
        keys = fit(keys, max(columns - taken, 10))
    return f"  {paint(fate, _COLOURS[one.fate])} {name} {pods}  {keys}".rstrip()


def _keys(one: Asking) -> str:
    """What a workload asks for, each key once: in two containers it is asked for twice."""
    asked: dict[str, list[str]] = {}
    told: set[tuple[str, str]] = set()
    for key in one.keys:
        amounts = asked.setdefault(key.key, [])
        word = key.container, key.key
        if key.amount and word not in told:
            amounts.append(key.amount)
        told.add(word)
    words = [_asked(key, amounts) for key, amounts in asked.items()]
    return ", ".join(words)


def _asked(key: str, amounts: Sequence[str]) -> str:
    return f"{key}={'+'.join(amounts)}" if amounts else key


def _details(one: Asking) -> Iterator[str]:
    for key in one.keys:
        where = printable(f"{key.container or 'pod'}: {key.key}")
        detail = printable(f"  {key.detail}" if key.detail else "")
        code = f" [{key.code}]" if key.code else ""
        yield f"      {key.fate.value:<8} {where}{detail}{code}"
        if key.remedy:
            yield f"               {printable(key.remedy)}"
    for warning in one.warnings:
        yield f"      {printable(warning)}"


def _reasons(seen: Overview, paint: Paint) -> Iterator[str]:
    if not seen.reasons:
        return
    yield ""
    yield paint("To decide", "bold")
    for one in seen.reasons:
        concerned = f"{count(one.workloads, 'workload')}, {count(one.pods, 'pod')}"
        code = f" [{one.code}]" if one.code else ""
        yield f"  {one.fate.value}: {printable(f'{one.key}: {one.detail}')}{code} ({concerned})"
        if one.remedy:
            yield f"      {printable(one.remedy)}"


def _obstacles(seen: Overview, paint: Paint) -> Iterator[str]:
    if not seen.obstacles:
        return
    yield ""
    yield paint("In the way", "bold")
    for one in seen.obstacles:
        yield f"  {one.what}: {printable(one.object)}: {printable(one.message)}"
        yield f"      {one.remedy}"


def _devices(seen: Overview, paint: Paint, *, wide: bool) -> Iterator[str]:
    if not seen.plugins and not seen.drivers:
        return
    yield ""
    yield paint("Devices", "bold")
    for one in seen.plugins:
        used = f"{one.moving:,} used by pods that move, {one.staying:,} by pods that stay"
        after = f"{one.freed:,} freed, {one.stranded:,} stranded beside pods that stay"
        yield f"  {printable(one.key)}: {one.devices:,} on {count(one.nodes, 'node')}; {used}; {after}"
    for driver in seen.drivers:
        yield f"  driver {printable(driver.driver)}: {driver.devices:,} on {count(driver.nodes, 'node')}"
    for side in seen.sides:
        yield from _side(side, wide=wide)


# In the order in which a node goes from one to the next.
_STANDING: Final = {
    "plugin": "hand it out",
    "both": "hand it out and publish it",
    "halfway": "have none left and publish nothing",
    "driver": "publish it",
    "neither": "do neither",
}


def _side(side: Standing, *, wide: bool) -> Iterator[str]:
    """Where the nodes stand for a name: those that are few or in danger by name, all of them in the wide form."""
    groups = {said: getattr(side, name) for name, said in _STANDING.items()}
    parts = [f"{len(nodes):,} {said}" for said, nodes in groups.items() if nodes]
    yield f"  {printable(side.key)}, node by node: {'; '.join(parts)}"
    for said, nodes in groups.items():
        if not nodes:
            continue
        shown = nodes if wide else nodes[:_NAMED]
        more = f" and {len(nodes) - len(shown):,} more" if len(nodes) > len(shown) else ""
        yield f"      {said}: {printable(', '.join(shown))}{more}"


def _unread(seen: Overview, paint: Paint) -> Iterator[str]:
    if not seen.unread:
        return
    yield ""
    yield paint("Not read, so this survey is not whole", "bold")
    for one in seen.unread:
        yield f"  {printable(one.kind)}: {printable(one.reason)}"
