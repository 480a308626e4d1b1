"""Lists every metric in docs/operating.md by component, with its labels and its help text. The source code is read, not run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from serving.metrics import POD_DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SUFFIXES = {"counter": "_total"}
KINDS = {"counter": "counter", "histogram": "histogram"}
COMPONENTS = {"webhook": "Webhook, controllers, authority", "allocator": "Allocator", "node": "Driver, adapter and node agent"}  # fmt: skip


class Metric(NamedTuple):
    name: str  # as Prometheus shows it
    kind: str
    labels: tuple[str, ...]
    help_text: str
    component: str


def item_list() -> str:
    all_metrics = sorted(find_metrics())
    lines: list[str] = []
    for component, title in COMPONENTS.items():
        lines += ["", f"### {title}", ""]
        for metric in all_metrics:
            if metric.component == component:
                labels = f" by {', '.join(metric.labels)}" if metric.labels else ""
                lines.append(f"- `{metric.name}` ({metric.kind}{labels}): {metric.help_text}")
    return "\n".join(lines[1:])


def find_metrics() -> Iterator[Metric]:
    """Find the calls that create a metric."""
    for component in COMPONENTS:
        for path in sorted((ROOT / component).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if '"drawbridge_' not in source:
                continue
            tree = ast.parse(source)
            constants: dict[str, object] = {"POD_DEVICE": POD_DEVICE}
            for statement in tree.body:
                if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
                    constants[name.id] = evaluate(statement.value, constants)
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and len(call.args) > 1:
                    yield from metrics_of_call(call, constants, component)


def metrics_of_call(call: ast.Call, constants: dict[str, object], component: str) -> Iterator[Metric]:
    constructor = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    label_arguments = [*call.args[2:3], *(keyword.value for keyword in call.keywords if keyword.arg == "labels")]
    labels = next(
        (value for argument in label_arguments if isinstance(value := evaluate(argument, constants), tuple)), ()
    )
    metric, text = evaluate(call.args[0]), evaluate(call.args[1])
    if isinstance(metric, str) and metric.startswith("drawbridge_"):
        if not isinstance(text, str):
            raise ValueError(f"the help text of {metric} is no constant, so docs/operating.md cannot have it")
        yield Metric(metric + SUFFIXES.get(constructor, ""), KINDS.get(constructor, "gauge"), labels, text, component)


def evaluate(node: ast.expr, constants: dict[str, object] | None = None) -> object:
    """Evaluate a constant expression; names are looked up in `constants`. Return None for any other expression."""
    if isinstance(node, ast.Name):
        return (constants or {}).get(node.id)
    if isinstance(node, ast.Tuple):
        parts: list[object] = []
        for element in node.elts:
            value = evaluate(element.value if isinstance(element, ast.Starred) else element, constants)
            parts += value if isinstance(value, tuple) else [value]
        return tuple(parts)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
