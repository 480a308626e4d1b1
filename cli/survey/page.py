"""A survey as one HTML page to print or hand on: it loads nothing from a network, and runs nothing. Pure.

Texts from the cluster are escaped; a policy in the page forbids scripts, pictures and addresses all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cli.survey.screen import SAID
from cli.survey.verdicts import Outlook
from cli.terminal import count_of, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.survey.overview import Overview

_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1a1a1a}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #bbb}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
td.n,th.n{text-align:right;white-space:nowrap}.moved,.moves,.webhook,.served{color:#17692f}.differs,.waits{color:#8a5a00}.stays,.unclear,.refused{color:#a01c1c}
.bar{display:flex;height:1.2rem;margin:.5rem 0 1rem}.bar span{display:block}.bar .moved,.bar .moves,.bar .webhook,.bar .served{background:#2d8a4a}
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
    server = f"Kubernetes {escaped(seen.server)}, " if seen.server else ""
    read = f"{count_of(seen.objects, 'object')} read, {count_of(seen.pods, 'living pod')} among them"
    parts = [_HEAD, "<h1>Accelerator workloads: what becomes of them</h1>", f"<p>{server}{read}.</p>"]
    if not seen.workloads:
        parts.append("<p>No workload asks for a device.</p>")
    else:
        fates = [(fate, seen.fates[fate]) for fate in Outlook if seen.fates[fate]]
        stripes = [f'<span class="{fate}" style="flex:{number}"></span>' for fate, number in fates]
        parts.append(f'<div class="bar">{"".join(stripes)}</div>')
        parts += _table("", ("Workloads", "", ""), [(number, _fate(fate), SAID[fate]) for fate, number in fates])
    reasons = [
        (one.workloads, one.pods, _fate(one.fate), escaped(one.key), _with_remedy(one.detail, one.remedy))
        for one in seen.reasons
    ]
    parts += _table("To decide", ("Workloads", "Pods", "", "Key", "Why, and what to do"), reasons)
    obstacles = [
        (escaped(one.what), escaped(one.object), _with_remedy(one.message, one.remedy)) for one in seen.obstacles
    ]
    parts += _table("In the way", ("What", "Where", "Why, and what to do"), obstacles)
    head = ("Key", "Nodes", "Devices", "Used by what moves", "Used by what stays", "Freed", "Stranded")
    plugins = [
        (escaped(one.key), one.nodes, one.devices, one.moving, one.staying, one.freed, one.stranded)
        for one in seen.plugins
    ]
    parts += _table("Devices of device plugins", head, plugins)
    drivers = [(escaped(one.driver), one.nodes, one.devices) for one in seen.drivers]
    parts += _table("Devices of drivers", ("Driver", "Nodes", "Devices"), drivers)
    workloads: list[Sequence[object]] = []
    for one in seen.workloads:
        keys: dict[str, None] = {}
        for key in one.keys:
            amount = f" = {escaped(key.amount)}" if key.amount else ""
            keys[f"{escaped(key.key)}{amount} <small>{escaped(key.detail)}</small>"] = None
        name = f"{escaped(one.kind)}<br>{escaped(one.name)}"
        workloads.append((escaped(one.namespace), name, _fate(one.fate), one.pods, "<br>".join(keys)))
    parts += _table("Workloads", ("Namespace", "Workload", "", "Pods", "What it asks for"), workloads)
    unread = [(escaped(one.kind), escaped(one.reason)) for one in seen.unread]
    parts += _table("Not read, so this survey is not whole", ("What", "Why"), unread)
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _fate(fate: Outlook) -> str:
    return f'<b class="{fate}">{fate}</b>'


def _with_remedy(why: str, remedy: str) -> str:
    return f"{escaped(why)}<br><small>{escaped(remedy)}</small>"


def _table(title: str, head: Iterable[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Write a table, if it has rows; texts in it are HTML already, and numbers stand to the right."""
    if not rows:
        return
    if title:
        yield f"<h2>{title}</h2>"
    yield "<table><thead><tr>"
    yield from (f"<th>{one}</th>" for one in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = [f'<td class="n">{one:,}</td>' if isinstance(one, int) else f"<td>{one}</td>" for one in row]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
