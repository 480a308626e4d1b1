"""The suites of `make test` and their summary: each failure is counted, and the last line has the totals."""

from types import SimpleNamespace

import pytest

from e2e import build, fixtures, up
from e2e.ground import packages
from tests import runs, suite
from tests.test_limits import WITHOUT_SLOW_PLUGINS

# The test files of one run of pytest: five tests pass, and four failures count.
MIXED_TEST_FILES = {
    "good": "def test_one(): pass\ndef test_two(): pass",
    "bad": "def test_one(): pass\ndef test_two(): assert False",
    "broken_import": "import nothing_of_this_name",
    "broken_fixture": "import pytest\n@pytest.fixture\ndef f(): 1 / 0\ndef test_one(f): pass",
    "skipped": "import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no reason')",
    "known": "import pytest\n@pytest.mark.xfail\ndef test_one(): assert False\ndef test_two(): pass",
}
COUNTED_FAILURES = {
    "test_bad::test_two",
    "test_broken_import",
    "test_broken_fixture::test_one",
    "test_skipped::test_two",
}
SUITES_AND_COUNTS = {
    "mixed outcomes": (MIXED_TEST_FILES, (5, len(COUNTED_FAILURES))),
    "no tests": ({"it": ""}, (0, 1)),
    "crash": ({"it": "import os\ndef test_one(): os._exit(0)"}, (0, 1)),
}


@pytest.mark.parametrize("case", SUITES_AND_COUNTS)
def test_a_suite_counts_passed_and_failed_tests(case, tmp_path):
    files, (passed, failed) = SUITES_AND_COUNTS[case]
    for name, content in files.items():
        (tmp_path / f"test_{name}.py").write_text(content)
    outcome = runs.pytest_suite(case, "not long", str(tmp_path), *WITHOUT_SLOW_PLUGINS, strict=True)
    assert (outcome.passed, outcome.failed) == (passed, failed)
    if case == "mixed outcomes":
        failure_notes = [note for note in outcome.notes if not note.startswith("known to fail")]
        assert len(failure_notes) == failed
        assert all(any(failure in note for note in failure_notes) for failure in COUNTED_FAILURES), failure_notes


def test_a_hanging_suite_is_ended_and_counted(tmp_path):
    (tmp_path / "test_it.py").write_text("import time\ndef test_one(): time.sleep(60)")
    assert runs.pytest_suite("hangs", "not long", str(tmp_path), *WITHOUT_SLOW_PLUGINS, deadline=1.0).failed == 1


@pytest.mark.parametrize(
    ("outcomes", "exit_code", "last_line"),
    [
        ([runs.Outcome("a", 2, 0), runs.Outcome("b", 1, 0)], 0, "3 passed, 0 failed"),
        ([runs.Outcome("a", 2, 0), runs.Outcome("b", 0, 1)], 1, "2 passed, 1 failed"),
        ([], 1, "0 passed, 1 failed"),
    ],
)
def test_the_last_line_has_the_totals(capsys, outcomes, exit_code, last_line):
    assert suite.summary(outcomes) == exit_code
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_the_last_line_follows_the_list_of_further_commands(capsys):
    suite.summary([runs.Outcome("a", 1)], suite.FURTHER_SUITES)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 0 failed"
    targets = [line.split()[1] for line in lines if line.startswith("  make ")]
    makefile = (runs.ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets[0] == "test-all"
    assert [name for name in targets if f"\n{name}: setup ## " not in makefile] == []


@pytest.mark.parametrize("value", ["", "1"], ids=["not requested", "requested"])
def test_packages_are_installed_only_on_request(value, monkeypatch, tmp_path):
    installations = []
    monkeypatch.setenv("DRAWBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("INSTALL", value)
    monkeypatch.setattr(packages, "missing", lambda *_: [] if installations else ["runc", "mount"])
    monkeypatch.setattr(packages, "apt", lambda *arguments: installations.append(arguments) or True)
    monkeypatch.setattr(packages.shutil, "which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)
    if value:
        packages.require()
        assert installations == [("install", "runc", "mount")]
    else:
        with pytest.raises(
            build.BuildError, match=r"apt-get install --no-install-recommends runc mount`, or set INSTALL=1"
        ):
            packages.require()
        assert not installations


@pytest.mark.parametrize(
    ("mark", "folders"),
    [("real", suite.FOLDERS_ON_CLUSTERS), ("node", suite.FOLDERS_ON_CLUSTERS), ("oracle", suite.FOLDERS_WITH_REFEREES)],
)
def test_tests_with_a_mark_are_in_folders_of_its_suite(mark, folders):
    files = [path.relative_to(runs.ROOT) for parent in ("tests", "e2e") for path in (runs.ROOT / parent).rglob("*.py")]
    files_with_mark = [
        file for file in files if f"pytest.mark.{mark}" in (runs.ROOT / file).read_text(encoding="utf-8")
    ]
    files_outside = [
        str(file) for file in files_with_mark if not any(file.is_relative_to(folder) for folder in folders)
    ]
    assert files_with_mark
    assert files_outside == []


@pytest.mark.parametrize(
    ("marks", "expected_names"), [("oracle", ["short"]), ("oracle or long", ["short", "long"]), ("", ["short", "long"])]
)
def test_only_a_mark_expression_without_long_leaves_out_long_tests(pytestconfig, marks, expected_names):
    hook = pytestconfig.pluginmanager.get_plugin(str(runs.ROOT / "conftest.py")).pytest_collection_modifyitems
    items = [SimpleNamespace(name="short", get_closest_marker=lambda _: None)]
    items += [SimpleNamespace(name="long", get_closest_marker={"long": True}.get)]
    deselected_items = []

    def deselected(items):
        deselected_items.extend(items)

    hooks = SimpleNamespace(pytest_deselected=deselected)
    hook(SimpleNamespace(option=SimpleNamespace(markexpr=marks), hook=hooks), items)
    assert [item.name for item in items] == expected_names
    assert len(items) + len(deselected_items) == 2


def test_a_test_for_linux_is_skipped_elsewhere_with_its_reason(pytestconfig, monkeypatch):
    conftest = pytestconfig.pluginmanager.get_plugin(str(runs.ROOT / "conftest.py"))
    monkeypatch.setattr(conftest.sys, "platform", "darwin")
    added_marks = []
    mark = {"linux": SimpleNamespace(args=("reads /proc",))}
    items = [SimpleNamespace(get_closest_marker=marks.get, add_marker=added_marks.append) for marks in (mark, {})]
    conftest.pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace(markexpr="")), items)
    assert [mark.kwargs["reason"] for mark in added_marks] == ["only Linux has it: reads /proc"]


def test_chromium_is_missing_only_where_a_browser_is_required(monkeypatch):
    monkeypatch.setattr(packages, "browser", lambda: "")
    assert "chromium" in packages.missing(packages.BROWSER)
    assert "chromium" not in packages.missing()
    monkeypatch.setattr(packages, "browser", lambda: "/usr/bin/chromium")
    assert "chromium" not in packages.missing(packages.BROWSER)


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "missing"])
def test_the_browser_driver_is_installed_only_if_missing(is_installed, monkeypatch, capfd):
    commands = []
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda _: object() if is_installed else None)
    monkeypatch.setattr(
        suite.subprocess, "run", lambda command, **_: commands.append(command) or SimpleNamespace(returncode=1)
    )
    suite.install_browser_driver()
    assert [command[-3:] for command in commands] == [["--require-hashes", "-r", "tests/browser.lock"]] * (
        not is_installed
    )
    assert ("are left out" in capfd.readouterr().out) == (not is_installed)


@pytest.mark.parametrize("missing_plugin", ["ptp", "host-local", "loopback"])
def test_a_node_needs_each_cni_plugin_that_containerd_calls(missing_plugin, monkeypatch, tmp_path):
    """containerd calls `loopback` even if no CNI configuration names it."""
    for name in {"ptp", "host-local", "loopback"} - {missing_plugin}:
        (tmp_path / name).touch()
    monkeypatch.setattr(packages, "CNI_PLUGINS", tmp_path)
    assert "containernetworking-plugins" in packages.missing()


@pytest.mark.parametrize("package", ["iproute2", "iptables"])
def test_a_node_needs_the_programs_of_its_network(package, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert package in packages.missing()


@pytest.mark.parametrize(("arguments", "needs_node"), [(["--no-node"], False), ([], True)])
def test_a_cluster_announces_only_the_programs_that_it_needs(arguments, needs_node, monkeypatch):
    monkeypatch.setattr(build.Path, "exists", lambda _: False)
    messages = []
    monkeypatch.setattr(up, "say", messages.append)
    monkeypatch.setattr(up, "ControlPlane", no_cluster)
    monkeypatch.setattr(up.foreign, "refuse", lambda: None)
    monkeypatch.setattr(up.os, "geteuid", lambda: 0)
    monkeypatch.setattr(build, "folder", lambda _: build.Path("/nonexistent"))
    with pytest.raises(NoClusterError):
        up.start(up.read_options(arguments))
    [message] = messages
    assert "kube-apiserver" in message
    assert ("containerd" in message) is needs_node
    assert "prometheus" not in message
    assert "karpenter" not in message


class NoClusterError(Exception):
    """Raised in place of starting a cluster."""


def no_cluster(**_):
    raise NoClusterError


@pytest.mark.parametrize("marks", [("real",), ("real", "node")])
def test_only_suites_with_a_node_build_programs_of_a_node(marks, monkeypatch):
    required = []
    monkeypatch.setattr(build, "program", lambda name, _=None: required.append(name))
    monkeypatch.setattr(fixtures.packages, "require", lambda: required.append("packages"))
    item = SimpleNamespace(get_closest_marker=lambda name: name in marks or None)
    option = SimpleNamespace(collectonly=False)
    fixtures.pytest_collection_finish(SimpleNamespace(config=SimpleNamespace(option=option), items=[item]))
    assert {"kube-apiserver", "helm", "drawbridge-scheduler"} <= set(required)
    assert ("karpenter" in required) is ("node" in marks)
    assert ("prometheus" in required) is ("node" in marks)
    assert ("packages" in required) is ("node" in marks)
