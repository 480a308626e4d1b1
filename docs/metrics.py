"""Lists every metric in docs/operating.md by component, with its labels and its help text. The source code is read, not run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runtime.metrics import POD_DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SUFFIX = {"counter": "_total"}
FORMS = {"counter": "counter", "histogram": "histogram"}
COMPONENTS = {"webhook": "Webhook, controllers, authority", "allocator": "Allocator", "node": "Driver, adapter and node agent"}  # fmt: skip


class Metric(NamedTuple):
    name: str  # as Prometheus shows it
    form: str
    labels: tuple[str, ...]
    text: str
    component: str


def listed() -> str:
    found = sorted(metrics())
    lines: list[str] = []
    for component, title in COMPONENTS.items():
        lines += ["", f"### {title}", ""]
        for one in found:
            if one.component == component:
                labels = f" by {', '.join(one.labels)}" if one.labels else ""
                lines.append(f"- `{one.name}` ({one.form}{labels}): {one.text}")
    return "\n".join(lines[1:])


def metrics() -> Iterator[Metric]:
    """Find the calls that create a metric. The names after a common prefix (`drawbridge_workers_`) are the keys of a table."""
    for component in COMPONENTS:
        for path in sorted((ROOT / component).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            known: dict[str, object] = {"POD_DEVICE": POD_DEVICE}
            for one in tree.body:
                if isinstance(one, ast.Assign) and isinstance(name := one.targets[0], ast.Name):
                    known[name.id] = literal(one.value, known)
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and len(call.args) > 1:
                    yield from made(call, known, component)


def made(call: ast.Call, known: dict[str, object], component: str) -> Iterator[Metric]:
    maker = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [*call.args[2:3], *(keyword.value for keyword in call.keywords if keyword.arg == "labels")]
    labels = next((found for one in given if isinstance(found := literal(one, known), tuple)), ())
    name, text = literal(call.args[0]), literal(call.args[1])
    rows = [(name, text)]
    if isinstance(call.args[0], ast.JoinedStr) and isinstance(start := call.args[0].values[0], ast.Constant):
        family = known["WORKERS"] if start.value == "drawbridge_workers_" else {}
        rows = [(f"{start.value}{what}", said) for what, said in family.items()] if isinstance(family, dict) else []
    for one, said in rows:
        if isinstance(one, str) and one.startswith("drawbridge_") and isinstance(said, str):
            yield Metric(one + SUFFIX.get(maker, ""), FORMS.get(maker, "gauge"), labels, said, component)


def literal(node: ast.expr, known: dict[str, object] | None = None) -> object:
    """Evaluate a constant expression; names are looked up in `known`. Return None for any other expression."""
    if isinstance(node, ast.Name):
        return (known or {}).get(node.id)
    if isinstance(node, ast.Tuple):
        parts: list[object] = []
        for elt in node.elts:
            found = literal(elt.value if isinstance(elt, ast.Starred) else elt, known)
            parts += found if isinstance(found, tuple) else [found]
        return tuple(parts)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
