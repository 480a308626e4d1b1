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
WORLD = frozenset(
    {"aiohttp", "asyncio", "kubernetes", "logging", "os", "random", "socket", "ssl", "time", "subprocess"}
)
LEGEND = (
    "A band is a package, above the packages that it uses. A line leads left from a folder to a folder that it uses. "
    '<tspan fill="#2f6b3c">Green is pure</tspan>; <tspan fill="#a85b12">orange has I/O, clock or chance</tspan>.'
)
LONGEST = 24  # characters of a title
STEP, BOX, GAP, TALL, LEFT, TOP = 176, 146, 14, 40, 156, 44


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement of a module, without its expressions: nine of ten nodes are expressions, which contain no import or class."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for block in BLOCKS:
            if isinstance(inner := getattr(node, block, None), list):  # the body of a lambda is an expression
                left += inner


@dataclass(frozen=True)
class Place:
    """A folder of a package, or modules directly in the package."""

    package: str
    title: str
    files: tuple[Path, ...]

    @cached_property
    def imports(self) -> frozenset[str]:
        """The dotted names of all imports."""
        found = set[str]()
        for file in self.files:
            for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
                elif isinstance(node, ast.Import):
                    found |= {name.name for name in node.names}
        return frozenset(found)

    @property
    def modules(self) -> set[str]:
        """The second parts of the dotted names by which other code imports these files."""
        return {file.relative_to(ROOT / self.package).parts[0].removesuffix(".py") for file in self.files}

    @property
    def has_effects(self) -> bool:
        return any(name.split(".")[0] in WORLD for name in self.imports)


def places() -> list[Place]:
    """Return the folders and modules of all packages, without the `__init__.py` of a package."""
    listed = subprocess.run(
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
    gathered: dict[tuple[str, str], list[Path]] = {}
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        package, first, *_ = name.split("/")
        if (ROOT / name).is_file() and first != "__init__.py":
            gathered.setdefault((package, first.removesuffix(".py")), []).append(ROOT / name)
    return [Place(package, title, tuple(files)) for (package, title), files in gathered.items()]


def users(mine: list[Place]) -> dict[Place, set[Place]]:
    """Return for each folder of a package the other folders that it imports from."""
    owner = {f"{one.package}.{module}": one for one in mine for module in one.modules}
    found: dict[Place, set[Place]] = {}
    for one in mine:
        targets = {owner.get(".".join(dotted.split(".")[:2])) for dotted in one.imports}
        found[one] = {other for other in targets if other is not None and other != one}
    return found


def gathered_files(uses: dict[Place, set[Place]]) -> list[Place]:
    """Merge the single modules of each column."""
    floor = floors(uses)
    single = [one for one in uses if one.files[0].parent == ROOT / one.package]
    merged = []
    for number in sorted({floor[one] for one in single}):
        members = [one for one in single if floor[one] == number]
        titles = [member.title for member in members]
        whole = ", ".join(titles)
        title = whole if len(whole) <= LONGEST else f"{titles[0]}, …"
        merged.append(Place(members[0].package, title, tuple(file for member in members for file in member.files)))
    return [*merged, *(one for one in uses if one not in single)]


def floors(uses: dict[Place, set[Place]]) -> dict[Place, int]:
    """Return the column of each folder: one more than the highest column that it uses. Folders that use each other share a column."""
    reach = {one: reachable(one, uses) for one in uses}

    def height(one: Place) -> int:
        below = [other for other in reach[one] if one not in reach[other]]
        return max((1 + height(other) for other in below), default=0)

    return {one: height(one) for one in uses}


def reachable(start: Place, uses: dict[Place, set[Place]]) -> set[Place]:
    seen: set[Place] = set()
    ahead = list(uses[start])
    while ahead:
        one = ahead.pop()
        if one not in seen:
            seen.add(one)
            ahead.extend(uses[one])
    return seen


def direct(one: Place, uses: dict[Place, set[Place]]) -> list[Place]:
    """Return the folders that a folder uses, without those that it also reaches through another folder."""
    further = {
        target for other in uses[one] for target in reachable(other, uses) if other not in reachable(target, uses)
    }
    return sorted(uses[one] - further, key=lambda other: other.title)


def packages_used(package: str, folders: list[Place]) -> list[str]:
    names = {dotted.split(".")[0] for one in folders if one.package == package for dotted in one.imports}
    return [other for other in PACKAGES if other in names and other != package]


def draw(folders: list[Place]) -> str:
    """Return the picture as SVG text."""
    shapes: list[str] = []
    y, width = TOP, 0
    for package in PACKAGES:
        mine = gathered_files(users([one for one in folders if one.package == package]))
        uses = users(mine)
        floor = floors(uses)
        columns: dict[int, list[Place]] = {}
        for one in sorted(mine, key=lambda one: one.title):
            columns.setdefault(floor[one], []).append(one)
        tall = max(map(len, columns.values())) * (TALL + GAP) + GAP
        place = {
            one: (LEFT + column * STEP, y + GAP + row * (TALL + GAP))
            for column, members in columns.items()
            for row, one in enumerate(members)
        }
        width = max(width, *(x + STEP for x, _ in place.values()))
        below = packages_used(package, folders)
        shapes += band(package, y, tall, below)
        shapes += [line(place[one], place[other]) for one in place for other in direct(one, uses)]
        shapes += [box(one, *spot) for one, spot in place.items()]
        y += tall + GAP
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


def band(package: str, y: int, tall: int, below: list[str]) -> list[str]:
    words = ["uses " + below[0], *below[1:]] if below else ["uses no other package"]
    lines = [", ".join(words[number : number + 2]) for number in range(0, len(words), 2)]
    return [
        f'<rect x="{GAP}" y="{y}" width="@WIDTH@" height="{tall}" rx="6" fill="#f0ede4" stroke="#d8d2c0"/>',
        f'<text x="{GAP + 10}" y="{y + 24}" font-size="16" font-weight="600" fill="#222">{package}/</text>',
        *(
            f'<text x="{GAP + 10}" y="{y + 42 + 13 * number}" font-size="10" fill="#666">{part}</text>'
            for number, part in enumerate(lines)
        ),
    ]


def box(one: Place, x: int, y: int) -> str:
    fill, stroke = ("#fdebd3", "#d59a57") if one.has_effects else ("#e3f1e4", "#86b58e")
    files = f"{len(one.files)} file" + "s" * (len(one.files) != 1)
    return (
        f'<rect x="{x}" y="{y}" width="{BOX}" height="{TALL}" rx="4" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{x + 10}" y="{y + 17}" font-weight="600" font-size="{13 if len(one.title) < 20 else 10}" fill="#222">{one.title}</text>'
        f'<text x="{x + 10}" y="{y + 32}" font-size="11" fill="#555">{files}</text>'
    )


def line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0], start[1] + TALL // 2
    x2, y2 = end[0] + BOX, end[1] + TALL // 2
    bend = (x1 + x2) // 2
    return f'<path d="M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}" fill="none" stroke="#8a8574"/>'
