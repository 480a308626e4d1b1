"""The house keeps its order: faces, floors, names, plain words, narrow pages, and a picture that is true."""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis.schemas.schema import NAMES
from docs import layout, messages, plain_words
from docs import map as picture
from docs.generate import generated
from docs.map import ROOMS

ROOT = Path(__file__).parent.parent


@cache
def modules():
    return [path for room in ROOMS for path in below(room)]


def below(room):
    return sorted((ROOT / room).rglob("*.py"))


class Read(NamedTuple):
    """What the tests here ask of a module, so that each is parsed once."""

    imports: list[ast.ImportFrom]  # `from … import …`
    imports_of_types: list[ast.stmt]  # those for type checkers only
    at_the_top: set[str]  # names of classes
    says_what_it_is: bool
    public: set[str]
    names: set[str]  # of what it declares or sets


@cache
def read(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = list(picture.statements(tree))
    return Read(
        [node for node in statements if isinstance(node, ast.ImportFrom) and node.module],
        [
            one
            for node in statements
            if getattr(getattr(node, "test", None), "id", "") == "TYPE_CHECKING"
            for one in node.body
        ],
        {node.name for node in tree.body if isinstance(node, ast.ClassDef)},
        bool(ast.get_docstring(tree)),
        listed(tree),
        set(declared(tree)),
    )


def declared(tree):
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def listed(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


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
        for node in read(path).imports
        if (folder := folder_of(node.module)) not in (None, folder_of(dotted(path))) and node.module != folder
    ]
    assert around == []


@pytest.mark.parametrize("room", ["analysis", "cli", "dashboard"])
def test_no_files_import_each_other_in_a_circle(room):
    """Also not inside of functions. A folder imports what it exports, so its own files do not count as its users."""
    files = {dotted(path): path for path in below(room)}
    imported = defaultdict(set)
    for module, path in files.items():
        for node in read(path).imports:
            for name in node.names if node not in read(path).imports_of_types else ():
                used = next((one for one in (f"{node.module}.{name.name}", node.module) if one in files), module)
                if not module.startswith(used):
                    imported[module].add(used)
    TopologicalSorter(imported).prepare()


def test_names_imported_from_a_package_of_ours_are_in_its_public_list():
    for path in modules():
        for node in read(path).imports:
            if node.module in FOLDERS and folder_of(dotted(path)) != node.module:
                face = ROOT.joinpath(*node.module.split("."), "__init__.py")
                strange = {name.name for name in node.names} - read(face).public
                assert not strange, f"{path.relative_to(ROOT)}:{node.lineno}: not in the face of {node.module}"


def test_a_package_exports_only_what_other_packages_use():
    asked = defaultdict(set)
    around = [path for room in ("tests", "e2e", "bench", "docs") for path in below(room)]
    for path in modules() + around:
        own = folder_of(dotted(path))
        as_whole = {}
        for node in read(path).imports:
            for name in node.names:
                folder = f"{node.module}.{name.name}"
                if folder in FOLDERS and folder != own:
                    as_whole[name.asname or name.name] = folder
                elif node.module in FOLDERS and node.module != own:
                    asked[node.module].add(name.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if as_whole else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in as_whole:
                asked[as_whole[node.value.id]].add(node.attr)
    idle = {
        folder: sorted(read(ROOT.joinpath(*folder.split("."), "__init__.py")).public - asked[folder])
        for folder in FOLDERS
    }
    assert {folder: names for folder, names in idle.items() if names} == {}


def test_the_architecture_page_has_an_item_for_every_room_and_folder():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    room, told = "", set()
    for line in page.splitlines():
        if first := re.match(r"- `(\w+)/`", line):
            room = first[1]
        elif names := re.match(r"  - ((?:`\w+`,? ?)+):", line):
            told.update(f"{room}.{name}" for name in re.findall(r"`(\w+)`", names[1]))
    assert told >= FOLDERS
    assert {name for name in told if name.partition(".")[0] in ROOMS} <= FOLDERS


def test_every_folder_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.name == "__init__.py" and not read(path).says_what_it_is
    ]
    assert silent == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_type_name_has_one_meaning_in_a_room(room):
    """A count that stays: a search for the name finds both, and a reader of the room cannot tell which is meant."""
    places = defaultdict(set)
    for path in below(room):
        for name in read(path).at_the_top:
            if not name.startswith("_"):
                places[name].add(str(path.relative_to(ROOT)))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("name", generated())
def test_a_generated_file_is_up_to_date(name):
    assert (ROOT / name).read_text(encoding="utf-8") == generated()[name](), "run `make generate`"


def test_there_is_no_schema_of_something_else():
    assert {path.stem for path in (ROOT / "docs" / "schemas").iterdir()} == set(NAMES)


# Kubernetes has feature gates and scheduling gates.
GATE = re.compile(r"(?<!feature )(?<!scheduling )(?<!feature-)\bgates?\b")
LONGEST = 25  # words of a message
# Kubernetes' own sentence.
LONGER = ("dra/cel/library/named_formats.py",)


def test_comments_docstrings_and_pages_are_written_in_plain_words():
    lines = list(plain_words.found())
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.parametrize(
    "said",
    [
        "nobody asks",
        "anyone may ask",
        "no one asks",
        "it is told to who asks",
        "it is none",
        "is no path",
        "Who asks is answered",
        "his pod",
        "to be had",
        "a repair that mends it",
        "the allocator hears of it",
        "the kubelet goes by it",
        "it waits for ever",
        "it waits in vain",
        "the plugin goes on serving",
    ],
)
def test_the_constructions_are_found(said):
    assert plain_words.CONSTRUCTIONS.search(said)


@pytest.mark.parametrize("said", ["there is no path", "is no longer there", "the pod whose claim", "history", "this"])
def test_plain_english_is_not_found(said):
    assert not plain_words.CONSTRUCTIONS.search(said)


def test_names_and_texts_of_tests_are_looked_at_like_their_comments():
    source = 'def test_nobody_asks():  # a comment\n    assert asked() == 0, "who asks"\n'
    assert [said for _, said in plain_words.prose(source, tests=True)] == [
        "# a comment",
        "test nobody asks",
        "who asks",
    ]
    assert [said for _, said in plain_words.prose(source, tests=False)] == ["# a comment"]


def test_a_test_is_named_after_the_thing_it_is_about():
    named = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in ("tests", "e2e")
        for path in below(room)
        for name in re.findall(
            r"def (test_(?:what|whatever|who|whom|whose|whoever)_\w*)\b",
            path.read_text(encoding="utf-8"),
        )
    ]
    assert not named, "\n" + "\n".join(named)


def test_messages_are_written_in_plain_words():
    found = [
        f"{path}: {one}"
        for path, said in messages.collected()
        for one in said
        if GATE.search(one) or plain_words.CONSTRUCTIONS.search(one) or plain_words.NOWHERE.search(one)
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_message_has_at_most_25_words():
    long = {
        f"{path}: {one}"
        for path, said in messages.collected()
        for one in said
        if len(one.split()) > LONGEST and str(path) not in LONGER
    }
    assert not long, "\n" + "\n".join(sorted(long))


PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("[CRS]*.md"), ROOT / "e2e" / "README.md"])
PAGES.remove(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_narrow(page):
    """Lines of 120 characters, tables of five columns: what a diff and a terminal show; shown output and single words are as long as they are."""
    text = re.sub(r"```\n *(?:\$ |Warning: ).*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = text.splitlines()
    assert [line for line in lines if len(line) > layout.WIDTH and len(line.split()) > 1] == []
    assert [line for line in lines if line.startswith("|") and len(layout.cells(line)) > 5] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != ROOT / "README.md"], ids=lambda page: page.name)
def test_a_page_says_first_its_readers_and_its_purpose(page):
    title, first, *_ = (part for part in page.read_text(encoding="utf-8").split("\n\n") if part)
    assert title.startswith("# ")
    assert re.match(r"For [^:]+: ", first.replace("\n", " ")), first


def test_the_glossary_has_at_most_twenty_words():
    assert len(re.findall(r"^- \*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)) <= 20


def met():
    """The classes of equal names that one file meets: its own, and those of the modules it imports from."""
    names = {dotted(path): path for path in modules()}

    def defining(module, name):
        if f"{module}.{name}" in names:
            return f"{module}.{name}"
        if module not in names or names[module].name != "__init__.py" or name in read(names[module]).at_the_top:
            return module
        for node in read(names[module]).imports:
            if any((one.asname or one.name) == name for one in node.names):
                return defining(node.module, name)
        return module

    for own, path in names.items():
        if path.name != "__init__.py":
            near = {own} | {defining(node.module, one.name) for node in read(path).imports for one in node.names}
            places = defaultdict(set)
            for module in near & set(names):
                for name in read(names[module]).at_the_top:
                    places[name].add(module)
            yield from ((name, own) for name, found in places.items() if len(found) > 1 and not name.startswith("_"))


RIDDLES = frozenset({
    "who", "whose", "whom", "what", "here", "there", "theirs", "told", "said", "spoken", "heard", "wish", "strange", "believed",
    "makings", "asker", "alone", "gone", "tell", "asked", "kept", "seen", "held", "Left", "Known", "Made", "Given",
})  # fmt: skip


def test_a_name_says_what_the_value_is():
    found = {(str(path.relative_to(ROOT)), name) for path in modules() for name in RIDDLES & read(path).names}
    assert found == set()


def test_a_file_meets_no_two_classes_of_one_name():
    found = defaultdict(list)
    for name, own in met():
        found[name].append(own)
    assert found == {}


def test_no_group_that_may_match_in_two_ways_is_repeated_possessively():
    """Before Python 3.11.5, as Debian 12 has it, `(?:…)*+` does not match what it should; `(?>…)*+` does."""
    found = [f"{path.relative_to(ROOT)}: {text[:60]}" for path in modules() for text in texts_of(path) if GROUP_AGAIN.search(text)]  # fmt: skip
    assert found == []


# A group without groups in it but looks ahead, which is not atomic, and is repeated possessively.
GROUP_AGAIN = re.compile(r"\((?!\?>)(?:\\.|[^()\\]|\(\?[=!][^()]*\))*\)[*+?]\+")


def texts_of(path):
    """The texts of a module that are given to `re`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
            for one in ast.walk(node.args[0]):
                if isinstance(one, ast.Constant) and isinstance(one.value, str | bytes):
                    yield one.value if isinstance(one.value, str) else one.value.decode("latin-1")
