"""Packages are used only through their public names, modules have no import cycles, and generated files are up to date."""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.schemas.schema import NAMES
from docs.generate import generated
from tests.modules import PACKAGES, statements

ROOT = Path(__file__).parent.parent


@cache
def modules():
    return [path for package in PACKAGES for path in files_of_package(package)]


def files_of_package(package):
    return sorted((ROOT / package).rglob("*.py"))


class ParsedModule(NamedTuple):
    """The imports and public names of a module. They are kept, so that each module is parsed once."""

    imports: list[ast.ImportFrom]  # `from … import …`
    imports_of_types: list[ast.stmt]  # under `if TYPE_CHECKING`
    public: set[str]


@cache
def parse_module(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(statements(tree))
    return ParsedModule(
        [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module],
        [
            statement
            for node in nodes
            if getattr(getattr(node, "test", None), "id", "") == "TYPE_CHECKING"
            for statement in node.body
        ],
        public_names_of(tree),
    )


def public_names_of(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SUBPACKAGES = {
    dotted(path) for path in modules() if path.name == "__init__.py" and len(path.relative_to(ROOT).parts) == 3
}


def subpackage_of(module):
    name = ".".join(module.split(".")[:2])
    return name if name in SUBPACKAGES else None


def test_packages_import_other_packages_not_their_modules():
    internal = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports from inside {node.module}"
        for path in modules()
        for node in parse_module(path).imports
        if (subpackage := subpackage_of(node.module)) not in (None, subpackage_of(dotted(path)))
        and node.module != subpackage
    ]
    assert internal == []


@pytest.mark.parametrize(
    ("package", "counts_types"),
    [
        *((package, False) for package in ("analysis", "cli", "dashboard")),
        *((package, True) for package in ("allocator/service", "allocator/reservations", "webhook/translate")),
    ],
)
def test_modules_of_a_package_have_no_import_cycle(package, counts_types):
    """Imports inside functions count. A module's imports from the package that contains it do not count, because a package imports what it exports.
    Where imports under TYPE_CHECKING count, pass a component the values that it uses, not the object that contains the component.
    """
    files = {dotted(path): path for path in files_of_package(package)}
    imports_by_module = defaultdict(set)
    for module, path in files.items():
        for node in parse_module(path).imports:
            for name in node.names if counts_types or node not in parse_module(path).imports_of_types else ():
                imported_module = next(
                    (candidate for candidate in (f"{node.module}.{name.name}", node.module) if candidate in files),
                    module,
                )
                if not module.startswith(imported_module):
                    imports_by_module[module].add(imported_module)
    TopologicalSorter(imports_by_module).prepare()


def test_imported_names_are_in_the_public_list_of_their_package():
    for path in modules():
        for node in parse_module(path).imports:
            if node.module in SUBPACKAGES and subpackage_of(dotted(path)) != node.module:
                init = ROOT.joinpath(*node.module.split("."), "__init__.py")
                private = {name.name for name in node.names} - parse_module(init).public
                assert not private, f"{path.relative_to(ROOT)}:{node.lineno}: not in __all__ of {node.module}"


def test_a_package_exports_only_what_other_packages_use():
    public = {name: parse_module(ROOT.joinpath(*name.split("."), "__init__.py")).public for name in SUBPACKAGES}
    used_names = names_used_in(modules())
    unused = {name for subpackage, names in public.items() for name in names - used_names[subpackage]}
    outside = [path for package in ("tests", "e2e", "bench", "docs") for path in files_of_package(package)]
    mention = re.compile(rf"\b(?:{'|'.join(unused)})\b")  # parsing all tests would take seconds
    for subpackage, names in names_used_in(path for path in outside if mention.search(path.read_text("utf-8"))).items():
        used_names[subpackage] |= names
    assert {subpackage: names - used_names[subpackage] for subpackage, names in public.items() if names - used_names[subpackage]} == {}  # fmt: skip


def names_used_in(paths):
    """Return the names that modules use of each package that does not contain them."""
    used_names = defaultdict(set)
    for path in paths:
        own_subpackage = subpackage_of(dotted(path))
        imported_subpackages = {}
        for node in parse_module(path).imports:
            for name in node.names:
                subpackage = f"{node.module}.{name.name}"
                if subpackage in SUBPACKAGES and subpackage != own_subpackage:
                    imported_subpackages[name.asname or name.name] = subpackage
                elif node.module in SUBPACKAGES and node.module != own_subpackage:
                    used_names[node.module].add(name.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if imported_subpackages else ():
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in imported_subpackages
            ):
                used_names[imported_subpackages[node.value.id]].add(node.attr)
    return used_names


def test_the_architecture_page_lists_every_package_and_folder():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package, listed_names = "", set()
    for line in page.splitlines():
        if package_line := re.match(r"- `(\w+)/`", line):
            package = package_line[1]
        elif folder_line := re.match(r"  - ((?:`\w+`,? ?)+):", line):
            listed_names.update(f"{package}.{name}" for name in re.findall(r"`(\w+)`", folder_line[1]))
    assert listed_names >= SUBPACKAGES
    assert {name for name in listed_names if name.partition(".")[0] in PACKAGES} <= SUBPACKAGES


@pytest.mark.parametrize("name", generated())
def test_a_generated_file_is_up_to_date(name):
    assert (ROOT / name).read_text(encoding="utf-8") == generated()[name](), "run `make generate`"


def test_every_schema_file_belongs_to_a_known_kind():
    assert {path.stem for path in (ROOT / "docs" / "schemas").iterdir()} == set(NAMES)


def test_only_one_module_creates_tls_contexts_for_serving():
    """The contexts of certs/reload.py accept no handshake that costs a server much CPU."""
    server_names = ("PROTOCOL_TLS_SERVER", "CLIENT_AUTH", "SSLContext(")
    files = {
        path.relative_to(ROOT) for path in modules() if any(map(path.read_text(encoding="utf-8").count, server_names))
    }
    assert files == {Path("certs/reload.py")}


def test_no_plain_group_has_a_possessive_quantifier():
    """Python before 3.11.5 (Debian 12) matches `(?:…)*+` wrongly; `(?>…)*+` is correct."""
    found_groups = [f"{path.relative_to(ROOT)}: {text[:60]}" for path in modules() for text in patterns_in(path) if POSSESSIVE_GROUP.search(text)]  # fmt: skip
    assert found_groups == []


# A group with a possessive quantifier. The group is not atomic, and contains no groups except lookaheads.
POSSESSIVE_GROUP = re.compile(r"\((?!\?>)(?:\\.|[^()\\]|\(\?[=!][^()]*\))*\)[*+?]\+")


def patterns_in(path):
    """Yield the patterns that a module passes to `re`; a module without a possessive group is not parsed."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if re.search(r"\)[*+?]\+", source) else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
            for constant in ast.walk(node.args[0]):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str | bytes):
                    yield constant.value if isinstance(constant.value, str) else constant.value.decode("latin-1")
