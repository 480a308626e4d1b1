"""Checks of the repository: no data of one machine, links with targets, commands that exist."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bench.__main__ import SUITES
from cli.main import COMMANDS
from docs import metrics
from tests.modules import PACKAGES

ROOT = Path(__file__).parent.parent
REGISTRY = re.compile(r"proxy\.golang\.org|pypi\.org|files\.pythonhosted|registry\.npmjs|crates\.io|deb\.debian\.org")
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9_.$~{}-])/(?:work|farm|root)/")


def tracked_files(*patterns):
    output = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in output.decode().split("\0") if name and (ROOT / name).is_file()]


def lines_of(path):
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []


@pytest.mark.parametrize("pattern", [REGISTRY, MACHINE_PATH], ids=["registry", "machine"])
def test_no_tracked_file_names_a_registry_or_a_machine(pattern):
    matches = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path != Path(__file__)
        for number, line in enumerate(lines_of(path), 1)
        if pattern.search(line)
    ]
    assert matches == []


def test_the_patterns_match_their_examples():
    assert REGISTRY.search("https://proxy.golang" + ".org/x")
    assert MACHINE_PATH.search("see /" + "work/main")
    assert not MACHINE_PATH.search("https://example.org/work/")


def test_every_relative_link_of_the_documents_has_a_target():
    dead_links = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in tracked_files("*.md")
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert dead_links == []


def headings(path):
    """Return the headings of a document outside of code blocks, and the anchors of the headings."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return titles, {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_link_to_a_heading_has_a_target():
    dead_links = [
        f"{path.relative_to(ROOT)}: {target}#{anchor}"
        for path in tracked_files("*.md")
        for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
        if anchor not in headings(path.parent / target if target else path)[1]
    ]
    assert dead_links == []


def test_every_title_quoted_after_a_page_is_on_that_page():
    missing = [
        f"{path.relative_to(ROOT)}:{number}: {name} has no {title!r}"
        for path in tracked_files("*.py", "*.go", "*.md", "Makefile")
        if path != Path(__file__)
        for number, line in enumerate(lines_of(path), 1)
        for name, title in re.findall(r"(docs/\w+\.md), \"([^\"]+)\"", line)
        if title not in (ROOT / name).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_named_document_exists():
    """References in code count, too."""
    existing_names = {path.name for path in tracked_files("*.md")}
    dangling = [
        f"{path.relative_to(ROOT)}:{number} names {name}"
        for path in tracked_files("*.py", "*.go", "*.md", "*.yaml", "*.toml", "Makefile")
        for number, line in enumerate(lines_of(path), 1)
        for name in re.findall(r"(?<![\w*{}])[\w-]+\.md\b", line)
        if name not in existing_names
    ]
    assert dangling == []


def test_every_command_that_the_documents_name_exists():
    text = "\n".join(path.read_text(encoding="utf-8") for path in tracked_files("*.md"))
    named_commands = set(re.findall(r"(?:bin/|`|^|\s)drawbridge ([a-z]+)(?=[\s`|])", text, flags=re.MULTILINE))
    assert named_commands, "the documents name no command at all"
    assert {name for name in named_commands & words_in_code(text) if name not in COMMANDS} == set()


def words_in_code(text):
    """Return the words that follow `drawbridge` in code, because in prose any word may follow."""
    code = re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL)
    return {word for part in code for word in re.findall(r"drawbridge ([a-z]+)", part)}


def test_every_make_target_that_the_documents_name_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, flags=re.MULTILINE))
    code = [
        part
        for path in tracked_files("*.md")
        for part in re.findall(r"```.*?```|`[^`\n]+`", path.read_text(), re.DOTALL)
    ]
    words_after_make = {
        word
        for part in code
        for call in re.findall(r"^[`$ ]{,2}make ([a-z0-9 -]+)", part, re.MULTILINE)
        for word in call.split()
    }
    commands = {word for word in words_after_make if not word.startswith("-")}
    assert commands >= {"run", "test"}
    assert commands - targets == set()


def test_every_module_and_benchmark_in_a_python_command_exists():
    text = "\n".join(path.read_text(encoding="utf-8") for path in tracked_files("*.md", "*.py", "Makefile"))
    modules = {name.rstrip(".") for name in re.findall(r"python -m ((?:bench|tests|e2e)[a-z_.]*)", text)}
    files = [ROOT.joinpath(*name.split(".")) for name in modules]
    missing = [path.name for path in files if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())]
    assert missing == []
    suites = {name for names in re.findall(r"python -m bench ([a-z ]+)`", text) for name in names.split()}
    assert suites - set(SUITES) == set()
    assert {module for module in SUITES.values() if not hasattr(import_module(module), "rows")} == set()


def modules_loaded_by(*arguments):
    """Run the command line in a new interpreter; return the modules that the interpreter has loaded."""
    code = (
        "import sys; from cli.main import main\n"
        "try: main(sys.argv[1:], standalone_mode=False)\n"
        "finally: print('\\n' + ' '.join(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stderr.split())


def test_help_imports_no_heavy_library():
    assert (
        modules_loaded_by("--help") & {"aiohttp", "kubernetes", "cryptography", "yaml", "msgspec", "prometheus_client"}
        == set()
    )


@pytest.mark.parametrize("arguments", ["translate -f FILE", "check -f FILE", "dialects -o json --config FILE"])
def test_offline_commands_import_no_network_library(arguments, tmp_path):
    file = tmp_path / "configuration.yaml"
    file.write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n")
    loaded = modules_loaded_by(*arguments.replace("FILE", str(file)).split())
    assert "yaml" in loaded
    assert loaded & {"aiohttp", "kubernetes", "cryptography", "prometheus_client"} == set()


PRODUCT_FILES = tuple(f"{package}/*.py" for package in PACKAGES)


def test_every_test_that_the_documents_name_exists():
    """The documents write `file.py::test`; `…` stands for the rest of a name."""
    tests = {str(path.relative_to(ROOT)): path.read_text() for path in tracked_files("tests/*.py", "e2e/*.py")}
    named_tests = [
        (document.relative_to(ROOT), file, name)
        for document in tracked_files("*.md")
        for file, name in re.findall(r"`([\w/]+\.py)::([\w…]+)`", document.read_text(encoding="utf-8"))
    ]
    assert named_tests
    missing = [
        f"{document}: {file}::{name}"
        for document, file, name in named_tests
        if not re.search(rf"def {name}\(".replace("…", r"\w*"), tests.get(file, ""))
    ]
    assert missing == []


TOP_FOLDERS = "|".join([*PACKAGES, "bench", "bridge", "docs", "e2e", "manifests", "tests"])


def test_every_file_and_folder_that_the_documents_name_exists():
    named_paths = [
        (document.relative_to(ROOT), path)
        for document in tracked_files("*.md")
        for path in re.findall(rf"`((?:{TOP_FOLDERS})/[\w/.-]+?)(?:`|::)", document.read_text(encoding="utf-8"))
    ]
    assert named_paths
    assert [(str(document), path) for document, path in named_paths if not (ROOT / path).exists()] == []


def test_every_module_attribute_that_the_documents_name_exists():
    """The form is `package.module.name`; names of drivers and files look the same and are left out."""
    pattern = r"`(?!dra\.(?:net|cpu|memory|hygon\.com|yaml)`)((?:allocator|certs|cli|cluster|dra|node|serving|webhook)(?:\.\w+)+)`"
    documents = [path for path in tracked_files("*.md") if path.name != "CHANGELOG.md"]
    named_attributes = {
        name: path.name for path in documents for name in re.findall(pattern, path.read_text(encoding="utf-8"))
    }
    missing = {}
    for name, document in named_attributes.items():
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            missing[name] = document
    assert missing == {}
    assert named_attributes


def test_the_reading_table_names_existing_files_and_definitions():
    """Each file in the table of the architecture page exists and defines the names that follow it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where to begin reading")[2].partition("\n## ")[0]
    rows = re.findall(r"`(\w+/[\w/]+\.py)`((?:,? `\w+`(?![\w/.]))*)", table)
    missing = [
        f"{file} has no {name}"
        for file, names in rows
        for name in re.findall(r"`(\w+)`", names)
        if not re.search(rf"^ *(?:async )?def {name}\(|^{name}\b", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []
    assert rows


def test_the_architecture_page_names_each_module_with_the_message_of_a_refusal_as_impossible():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    item = page.partition("**The message** of R020 to R023")[2].partition("\n- ")[0]
    code = re.compile(r"\bCode\.(?:NEVER|NO_CLASS|NO_DEVICE|TOO_MANY)\b")
    modules = [
        str(path.relative_to(ROOT))
        for path in tracked_files("webhook/*.py")
        if path.name != "refusals.py" and code.search(path.read_text("utf-8"))
    ]
    assert re.findall(r"`([\w/]+\.py)`", item) == modules


def test_no_page_has_a_hole_where_a_section_was():
    pages = tracked_files("*.md")
    assert [str(path.relative_to(ROOT)) for path in pages if "\n\n\n" in path.read_text(encoding="utf-8")] == []


def test_every_metric_that_the_documents_name_has_the_queried_labels():
    metrics_by_name = {metric.name: metric for metric in metrics.find_metrics()}
    named_metrics = [
        (name, set(re.findall(r"(\w+)!?=~?\"", labels)))
        for document in tracked_files("docs/*.md")
        for name, labels in re.findall(
            r"\b(drawbridge_[a-z_]+[a-z])\b(\{[^}]*\})?", document.read_text(encoding="utf-8")
        )
    ]
    unknown = [
        (name, queried)
        for name, queried in named_metrics
        if not (metric := metrics_by_name.get(name, metrics_by_name.get(f"{name}_total")))
        or not queried <= set(metric.labels)
    ]
    assert unknown == []
    assert named_metrics


def test_every_readiness_reason_in_the_documents_exists():
    """The person on call searches docs/operating.md for the text of a readiness check."""
    source = "\n".join(path.read_text() for path in tracked_files(*PRODUCT_FILES))
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = re.findall(r"`\[[-!]\](\w+)[^:`]*: ([^`]+)`", page)
    assert rows
    for check, reason in rows:
        longest_part = max(re.split(r"…| X |\(|\)|: |, \w+$", reason), key=len).strip(" :")
        assert f'"{check}' in source, check
        assert longest_part in source, (check, longest_part)
