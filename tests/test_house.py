"""The house keeps its order: faces, floors, names, and a picture that is true."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from cli.schemas.command import FOLDER, text_of
from cli.schemas.schema import NAMES
from docs import map as picture
from tests.density import functions

ROOT = Path(__file__).parent.parent
ROOMS = ("allocator", "certs", "cli", "cluster", "dra", "node", "webhook")
MOST = 12  # files of a folder beside its face
LONG = 8  # lines of code from which on a function is held to a density
TOKENS = 11  # a line of it, on average
# A constructor is a list: a line of it is a field, its type and its first value, and there is nothing in between to name.
TOKENS_OF_CONSTRUCTORS = 12


def modules():
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FOLDERS = {dotted(path) for path in modules() if path.name == "__init__.py" and len(path.relative_to(ROOT).parts) == 3}


def folder_of(module):
    name = ".".join(module.split(".")[:2])
    return name if name in FOLDERS else None


def test_other_folders_are_used_through_their_face():
    around = [
        f"{path.relative_to(ROOT)}:{node.lineno} reaches into {node.module}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        if (folder := folder_of(node.module)) not in (None, folder_of(dotted(path))) and node.module != folder
    ]
    assert around == []


def test_what_is_imported_from_a_face_is_in_its_list():
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in FOLDERS and folder_of(dotted(path)) != node.module:
                listed = public(ROOT.joinpath(*node.module.split("."), "__init__.py"))
                strange = {name.name for name in node.names} - listed
                assert not strange, f"{path.relative_to(ROOT)}:{node.lineno}: not in the face of {node.module}"


def public(face):
    for node in ast.parse(face.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_a_face_lists_nothing_that_nobody_asks_for():
    asked = defaultdict(set)
    around = [path for room in ("tests", "e2e", "bench", "docs") for path in sorted((ROOT / room).rglob("*.py"))]
    for path in modules() + around:
        own = folder_of(dotted(path))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        as_whole = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for name in node.names:
                folder = f"{node.module}.{name.name}"
                if folder in FOLDERS and folder != own:
                    as_whole[name.asname or name.name] = folder
                elif node.module in FOLDERS and node.module != own:
                    asked[node.module].add(name.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in as_whole:
                asked[as_whole[node.value.id]].add(node.attr)
    idle = {
        folder: sorted(public(ROOT.joinpath(*folder.split("."), "__init__.py")) - asked[folder]) for folder in FOLDERS
    }
    assert {folder: names for folder, names in idle.items() if names} == {}


def test_no_folder_is_a_drawer():
    count = defaultdict(int)
    for path in modules():
        count[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    assert {name: files for name, files in count.items() if files > MOST} == {}


def test_the_architecture_page_has_a_row_for_every_room_and_folder():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    room, told = "", set()
    for first, *cells in rows:
        room = first.strip("| `/") if first.endswith("/`") else room
        told.update(f"{room}.{name}" for name in re.findall(r"`([a-z_]+)`", cells[0]))
    assert told >= FOLDERS
    assert {name for name in told if name.partition(".")[0] in ROOMS} <= FOLDERS


def test_every_folder_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_type_name_has_one_meaning_in_a_room(room):
    places = defaultdict(set)
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(ROOT)))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}


def test_no_type_name_stands_three_times_in_the_house():
    places = defaultdict(set)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].add(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: sorted(files) for name, files in places.items() if len(files) > 2} == {}


def test_a_line_does_one_thing():
    heavy = []
    for path in modules():
        for one in functions(path.read_text(encoding="utf-8")):
            most = TOKENS_OF_CONSTRUCTORS if one.name == "__init__" else TOKENS
            if one.lines >= LONG and one.density > most:
                where = f"{path.relative_to(ROOT)}:{one.line} {one.name}"
                heavy.append(
                    f"{where} has {one.density:.2f} tokens a line, and {most} at most: name what is in between"
                )
    assert not heavy, "\n" + "\n".join(heavy)


def test_the_picture_of_the_house_is_fresh():
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw(picture.places()), "run `make map`"


def test_the_published_schemas_are_fresh():
    stale = [name for name in NAMES if (FOLDER / f"{name}.json").read_text(encoding="utf-8") != text_of(name)]
    assert stale == [], "run `.venv/bin/python -m cli.schemas.command`"
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)
