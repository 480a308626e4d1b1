"""Draws docs/architecture.svg from the imports in the code, for `make generate`.

A band is a package; it lies above the packages that it uses. A box is a folder of the package, or all single modules of a column. A box
lies in the column to the right of the last box that it uses, and a line leads from it to each box that it uses, unless other lines lead
there. Green boxes are pure; orange boxes use I/O, the clock or random numbers. Imports for type checkers count, too, because readers of
the code follow them.
"""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
# In the order of .importlinter: each package imports only packages after it.
PACKAGES = (
    "cli",
    "dashboard",
    "analysis",
    "rendering",
    "webhook",
    "allocator",
    "node",
    "certs",
    "runtime",
    "cluster",
    "dra",
)
# A module that imports one of these is not pure.
IMPURE_MODULES = frozenset(
    {"aiohttp", "asyncio", "kubernetes", "logging", "os", "random", "socket", "ssl", "time", "subprocess"}
)
LEGEND = (
    "A band is a package, above the packages that it uses. A line leads left from a folder to a folder that it uses. "
    '<tspan fill="#2f6b3c">Green is pure</tspan>; <tspan fill="#a85b12">orange has I/O, clock or chance</tspan>.'
)
MAX_TITLE = 24  # characters of a title
COLUMN_WIDTH, BOX_WIDTH, GAP, BOX_HEIGHT, LEFT, TOP = 176, 146, 14, 40, 156, 44


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement of a module, without its expressions: nine of ten nodes are expressions, which contain no import or class."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in BLOCKS:
            if isinstance(inner := getattr(node, field, None), list):  # the body of a lambda is an expression
                pending += inner


@dataclass(frozen=True)
class Component:
    """A folder of a package, or modules directly in the package."""

    package: str
    title: str
    files: tuple[Path, ...]

    @cached_property
    def imports(self) -> frozenset[str]:
        """The dotted names of all imports."""
        imported = set[str]()
        for file in self.files:
            for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    imported |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
                elif isinstance(node, ast.Import):
                    imported |= {name.name for name in node.names}
        return frozenset(imported)

    @property
    def modules(self) -> set[str]:
        """The second parts of the dotted names by which other code imports these files."""
        return {file.relative_to(ROOT / self.package).parts[0].removesuffix(".py") for file in self.files}

    @property
    def has_effects(self) -> bool:
        return any(name.split(".")[0] in IMPURE_MODULES for name in self.imports)


def components() -> list[Component]:
    """Return the folders and modules of all packages, without the `__init__.py` of a package."""
    listing = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
            *(f"{package}/*.py" for package in PACKAGES),
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    files_by_component: dict[tuple[str, str], list[Path]] = {}
    for name in sorted(filter(None, listing.stdout.split("\0"))):
        package, folder, *_ = name.split("/")
        if (ROOT / name).is_file() and folder != "__init__.py":
            files_by_component.setdefault((package, folder.removesuffix(".py")), []).append(ROOT / name)
    return [Component(package, title, tuple(files)) for (package, title), files in files_by_component.items()]


def uses_in_package(package_components: list[Component]) -> dict[Component, set[Component]]:
    """Return for each folder of a package the other folders that it imports from."""
    component_of_module = {
        f"{component.package}.{module}": component for component in package_components for module in component.modules
    }
    uses: dict[Component, set[Component]] = {}
    for component in package_components:
        targets = {component_of_module.get(".".join(dotted.split(".")[:2])) for dotted in component.imports}
        uses[component] = {other for other in targets if other is not None and other != component}
    return uses


def merge_modules(uses: dict[Component, set[Component]]) -> list[Component]:
    """Merge the single modules of each column."""
    column_of = columns_of(uses)
    modules = [component for component in uses if component.files[0].parent == ROOT / component.package]
    merged = []
    for column in sorted({column_of[component] for component in modules}):
        members = [component for component in modules if column_of[component] == column]
        titles = [member.title for member in members]
        all_titles = ", ".join(titles)
        title = all_titles if len(all_titles) <= MAX_TITLE else f"{titles[0]}, …"
        merged.append(Component(members[0].package, title, tuple(file for member in members for file in member.files)))
    return [*merged, *(component for component in uses if component not in modules)]


def columns_of(uses: dict[Component, set[Component]]) -> dict[Component, int]:
    """Return the column of each folder: one more than the highest column that it uses. Folders that use each other share a column."""
    reachable = {component: reachable_from(component, uses) for component in uses}

    def column_of(component: Component) -> int:
        used = [other for other in reachable[component] if component not in reachable[other]]
        return max((1 + column_of(other) for other in used), default=0)

    return {component: column_of(component) for component in uses}


def reachable_from(start: Component, uses: dict[Component, set[Component]]) -> set[Component]:
    seen: set[Component] = set()
    pending = list(uses[start])
    while pending:
        component = pending.pop()
        if component not in seen:
            seen.add(component)
            pending.extend(uses[component])
    return seen


def direct_uses(component: Component, uses: dict[Component, set[Component]]) -> list[Component]:
    """Return the folders that a folder uses, without those that it also reaches through another folder."""
    indirect = {
        target
        for other in uses[component]
        for target in reachable_from(other, uses)
        if other not in reachable_from(target, uses)
    }
    return sorted(uses[component] - indirect, key=lambda other: other.title)


def packages_used(package: str, components: list[Component]) -> list[str]:
    names = {
        dotted.split(".")[0] for component in components if component.package == package for dotted in component.imports
    }
    return [other for other in PACKAGES if other in names and other != package]


def draw(all_components: list[Component]) -> str:
    """Return the picture as SVG text."""
    shapes: list[str] = []
    y, width = TOP, 0
    for package in PACKAGES:
        components = merge_modules(
            uses_in_package([component for component in all_components if component.package == package])
        )
        uses = uses_in_package(components)
        column_of = columns_of(uses)
        columns: dict[int, list[Component]] = {}
        for component in sorted(components, key=lambda component: component.title):
            columns.setdefault(column_of[component], []).append(component)
        height = max(map(len, columns.values())) * (BOX_HEIGHT + GAP) + GAP
        positions = {
            component: (LEFT + column * COLUMN_WIDTH, y + GAP + row * (BOX_HEIGHT + GAP))
            for column, members in columns.items()
            for row, component in enumerate(members)
        }
        width = max(width, *(x + COLUMN_WIDTH for x, _ in positions.values()))
        used_packages = packages_used(package, all_components)
        shapes += band(package, y, height, used_packages)
        shapes += [
            line(positions[component], positions[other])
            for component in positions
            for other in direct_uses(component, uses)
        ]
        shapes += [box(component, *position) for component, position in positions.items()]
        y += height + GAP
    width += GAP
    shapes = [shape.replace("@WIDTH@", str(width - 2 * GAP)) for shape in shapes]
    return "\n".join([*head(width, y + GAP), *shapes, "</svg>", ""])


def head(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
        'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">',
        "<title>The packages of drawbridge, drawn from its imports</title>",
        f'<rect width="{width}" height="{height}" fill="#fbfaf7"/>',
        f'<text x="{GAP}" y="26" font-size="15" fill="#222">{LEGEND}</text>',
    ]


def band(package: str, y: int, height: int, used_packages: list[str]) -> list[str]:
    words = ["uses " + used_packages[0], *used_packages[1:]] if used_packages else ["uses no other package"]
    lines = [", ".join(words[number : number + 2]) for number in range(0, len(words), 2)]
    return [
        f'<rect x="{GAP}" y="{y}" width="@WIDTH@" height="{height}" rx="6" fill="#f0ede4" stroke="#d8d2c0"/>',
        f'<text x="{GAP + 10}" y="{y + 24}" font-size="16" font-weight="600" fill="#222">{package}/</text>',
        *(
            f'<text x="{GAP + 10}" y="{y + 42 + 13 * number}" font-size="10" fill="#666">{part}</text>'
            for number, part in enumerate(lines)
        ),
    ]


def box(component: Component, x: int, y: int) -> str:
    fill, stroke = ("#fdebd3", "#d59a57") if component.has_effects else ("#e3f1e4", "#86b58e")
    files = f"{len(component.files)} file" + "s" * (len(component.files) != 1)
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{x + 10}" y="{y + 17}" font-weight="600" font-size="{13 if len(component.title) < 20 else 10}" fill="#222">{component.title}</text>'
        f'<text x="{x + 10}" y="{y + 32}" font-size="11" fill="#555">{files}</text>'
    )


def line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0], start[1] + BOX_HEIGHT // 2
    x2, y2 = end[0] + BOX_WIDTH, end[1] + BOX_HEIGHT // 2
    bend = (x1 + x2) // 2
    return f'<path d="M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}" fill="none" stroke="#8a8574"/>'
