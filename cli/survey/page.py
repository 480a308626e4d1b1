"""A survey as one HTML page for whoever decides: it prints, asks no network for anything, and runs nothing. Pure.

Everything that others wrote is escaped; a policy in the page forbids scripts, pictures and addresses all the same.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from cli.survey.screen import SAID, count
from cli.survey.verdicts import Outlook
from cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.survey.fleet import PluginStock
    from cli.survey.overview import Asking, Overview

_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1a1a1a}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #bbb}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
td.n,th.n{text-align:right;white-space:nowrap}.moved,.moves,.served{color:#17692f}.differs,.waits{color:#8a5a00}.stays,.unclear,.refused{color:#a01c1c}
.bar{display:flex;height:1.2rem;margin:.5rem 0 1rem}.bar span{display:block}.bar .moved,.bar .moves,.bar .served{background:#2d8a4a}
.bar .differs,.bar .waits{background:#e0a030}.bar .stays,.bar .unclear,.bar .refused{background:#c04040}small{color:#555}
@media print{body{margin:0;max-width:none;font-size:11px}tr{break-inside:avoid}h2{break-after:avoid}}
"""
_HEAD: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f"<title>Accelerator workloads: a survey</title><style>{_STYLE}</style></head><body>"
)


def page(seen: Overview) -> str:
    """Write the page."""
    parts = [
        _HEAD,
        *_summary(seen),
        *_reasons(seen),
        *_obstacles(seen),
        *_devices(seen),
        *_workloads(seen.workloads),
        *_unread(seen),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(value: object) -> str:
    return escape(printable(str(value)), quote=True)


def _summary(seen: Overview) -> Iterator[str]:
    yield "<h1>Accelerator workloads: what becomes of them</h1>"
    server = f"Kubernetes {_text(seen.server)}, " if seen.server else ""
    yield f"<p>{server}{count(seen.objects, 'object')} read, {count(seen.pods, 'living pod')} among them.</p>"
    if not seen.workloads:
        yield "<p>Nobody asks for a device.</p>"
        return
    fates = [(fate, seen.fates[fate]) for fate in Outlook if seen.fates[fate]]
    stripes = [f'<span class="{fate}" style="flex:{number}"></span>' for fate, number in fates]
    yield f'<div class="bar">{"".join(stripes)}</div>'
    rows = [(number, _fate(fate), SAID[fate]) for fate, number in fates]
    yield from _table(("Workloads", "", ""), rows)


def _fate(fate: Outlook) -> str:
    return f'<b class="{fate}">{fate}</b>'


def _reasons(seen: Overview) -> Iterator[str]:
    if not seen.reasons:
        return
    yield "<h2>To decide</h2>"
    rows: list[Sequence[object]] = []
    for one in seen.reasons:
        why = f"{_text(one.detail)}<br><small>{_text(one.remedy)}</small>"
        rows.append((one.workloads, one.pods, _fate(one.fate), _text(one.key), why))
    yield from _table(("Workloads", "Pods", "", "Key", "Why, and what to do"), rows)


def _obstacles(seen: Overview) -> Iterator[str]:
    if not seen.obstacles:
        return
    yield "<h2>In the way</h2>"
    rows: list[Sequence[object]] = []
    for one in seen.obstacles:
        why = f"{_text(one.message)}<br><small>{_text(one.remedy)}</small>"
        rows.append((_text(one.what), _text(one.object), why))
    yield from _table(("What", "Where", "Why, and what to do"), rows)


def _devices(seen: Overview) -> Iterator[str]:
    plugins = [_of_plugin(one) for one in seen.plugins]
    if plugins:
        yield "<h2>Devices of device plugins</h2>"
        head = ("Key", "Nodes", "Devices", "Used by what moves", "Used by what stays", "Freed", "Stranded")
        yield from _table(head, plugins)
    drivers = [(_text(one.driver), one.nodes, one.devices) for one in seen.drivers]
    if drivers:
        yield "<h2>Devices of drivers</h2>"
        yield from _table(("Driver", "Nodes", "Devices"), drivers)


def _of_plugin(one: PluginStock) -> Sequence[object]:
    return _text(one.key), one.nodes, one.devices, one.moving, one.staying, one.freed, one.stranded


def _workloads(workloads: Iterable[Asking]) -> Iterator[str]:
    rows = [_row(one) for one in workloads]
    if rows:
        yield "<h2>Workloads</h2>"
        yield from _table(("Namespace", "Workload", "", "Pods", "What it asks for"), rows)


def _row(one: Asking) -> Sequence[object]:
    keys = dict.fromkeys(_key(key.key, key.amount, key.detail) for key in one.keys)
    name = f"{_text(one.kind)}<br>{_text(one.name)}"
    return _text(one.namespace), name, _fate(one.fate), one.pods, "<br>".join(keys)


def _key(key: str, amount: str, detail: str) -> str:
    asked = f"{_text(key)} = {_text(amount)}" if amount else _text(key)
    return f"{asked} <small>{_text(detail)}</small>"


def _unread(seen: Overview) -> Iterator[str]:
    if not seen.unread:
        return
    yield "<h2>Not read, so this survey is not whole</h2>"
    rows = [(_text(one.kind), _text(one.reason)) for one in seen.unread]
    yield from _table(("What", "Why"), rows)


def _table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Write a table; texts in it are HTML already, and numbers stand to the right."""
    yield "<table><thead><tr>"
    for one in head:
        yield f"<th>{one}</th>"
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = [_cell(value) for value in row]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def _cell(value: object) -> str:
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{value}</td>"
