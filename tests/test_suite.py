"""The summary of `make test` is correct: each fault is counted, and the last line has the totals."""

from types import SimpleNamespace

import pytest

from e2e import build, fixtures, up
from e2e.ground import packages
from tests import runs, suite
from tests.test_limits import WITHOUT_SLOW_PLUGINS

# The test files of one run of pytest: five tests pass, and four failures count.
TOGETHER = {
    "good": "def test_one(): pass\ndef test_two(): pass",
    "bad": "def test_one(): pass\ndef test_two(): assert False",
    "broken_import": "import nothing_of_this_name",
    "broken_fixture": "import pytest\n@pytest.fixture\ndef f(): 1 / 0\ndef test_one(f): pass",
    "skipped": "import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no reason')",
    "known": "import pytest\n@pytest.mark.xfail\ndef test_one(): assert False\ndef test_two(): pass",
}
FAILURES = {"test_bad::test_two", "test_broken_import", "test_broken_fixture::test_one", "test_skipped::test_two"}
CASES = {
    "together": (TOGETHER, (5, len(FAILURES))),
    "none": ({"it": ""}, (0, 1)),
    "crash": ({"it": "import os\ndef test_one(): os._exit(0)"}, (0, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_suite_counts_outcomes(case, tmp_path):
    files, (passed, failed) = CASES[case]
    for name, content in files.items():
        (tmp_path / f"test_{name}.py").write_text(content)
    outcome = runs.pytest_suite(case, "not long", str(tmp_path), *WITHOUT_SLOW_PLUGINS, strict=True)
    assert (outcome.passed, outcome.failed) == (passed, failed)
    if case == "together":
        named = [note for note in outcome.notes if not note.startswith("known to fail")]
        assert len(named) == failed
        assert all(any(failure in note for note in named) for failure in FAILURES), named


def test_a_hanging_suite_is_ended_and_counted(tmp_path):
    (tmp_path / "test_it.py").write_text("import time\ndef test_one(): time.sleep(60)")
    assert runs.pytest_suite("hangs", "not long", str(tmp_path), *WITHOUT_SLOW_PLUGINS, deadline=1.0).failed == 1


@pytest.mark.parametrize(
    ("outcomes", "code", "last"),
    [
        ([runs.Outcome("a", 2, 0), runs.Outcome("b", 1, 0)], 0, "3 passed, 0 failed"),
        ([runs.Outcome("a", 2, 0), runs.Outcome("b", 0, 1)], 1, "2 passed, 1 failed"),
        ([], 1, "0 passed, 1 failed"),
    ],
)
def test_the_last_line_has_the_totals(capsys, outcomes, code, last):
    assert suite.summary(outcomes) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_the_last_line_follows_the_list_of_further_commands(capsys):
    suite.summary([runs.Outcome("a", 1)], suite.FURTHER)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 0 failed"
    named = [line.split()[1] for line in lines if line.startswith("  make ")]
    makefile = (runs.ROOT / "Makefile").read_text(encoding="utf-8")
    assert named[0] == "test-all"
    assert [target for target in named if f"\n{target}: setup ## " not in makefile] == []


@pytest.mark.parametrize("value", ["", "1"])
def test_packages_are_installed_only_on_request(value, monkeypatch, tmp_path):
    done = []
    monkeypatch.setenv("DRAWBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("INSTALL", value)
    monkeypatch.setattr(packages, "missing", lambda *_: [] if done else ["runc", "mount"])
    monkeypatch.setattr(packages, "apt", lambda *words: done.append(words) or True)
    monkeypatch.setattr(packages.shutil, "which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)
    if value:
        packages.require()
        assert done == [("install", "runc", "mount")]
    else:
        with pytest.raises(
            build.BuildError, match=r"apt-get install --no-install-recommends runc mount`, or set INSTALL=1"
        ):
            packages.require()
        assert not done


@pytest.mark.parametrize(
    ("mark", "folders"),
    [("real", suite.ON_CLUSTERS), ("node", suite.ON_CLUSTERS), ("oracle", suite.BESIDE_REFEREES)],
)
def test_suites_for_single_folders_together_cover_all_folders(mark, folders):
    files = [path.relative_to(runs.ROOT) for room in ("tests", "e2e") for path in (runs.ROOT / room).rglob("*.py")]
    marked = [file for file in files if f"pytest.mark.{mark}" in (runs.ROOT / file).read_text(encoding="utf-8")]
    elsewhere = [str(file) for file in marked if not any(file.is_relative_to(folder) for folder in folders)]
    assert marked
    assert elsewhere == []


@pytest.mark.parametrize(
    ("marks", "kept"), [("oracle", ["short"]), ("oracle or long", ["short", "long"]), ("", ["short", "long"])]
)
def test_a_long_form_is_chosen_only_by_its_name(pytestconfig, marks, kept):
    hook = pytestconfig.pluginmanager.get_plugin(str(runs.ROOT / "conftest.py")).pytest_collection_modifyitems
    items = [SimpleNamespace(name="short", get_closest_marker=lambda _: None)]
    items += [SimpleNamespace(name="long", get_closest_marker={"long": True}.get)]
    left = []

    def deselected(items):
        left.extend(items)

    hooks = SimpleNamespace(pytest_deselected=deselected)
    hook(SimpleNamespace(option=SimpleNamespace(markexpr=marks), hook=hooks), items)
    assert [item.name for item in items] == kept
    assert len(items) + len(left) == 2


def test_a_linux_only_test_is_skipped_elsewhere_with_its_reason(pytestconfig, monkeypatch):
    hook = pytestconfig.pluginmanager.get_plugin(str(runs.ROOT / "conftest.py"))
    monkeypatch.setattr(hook.sys, "platform", "darwin")
    added = []
    mark = {"linux": SimpleNamespace(args=("reads /proc",))}
    items = [SimpleNamespace(get_closest_marker=marks.get, add_marker=added.append) for marks in (mark, {})]
    hook.pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace(markexpr="")), items)
    assert [mark.kwargs["reason"] for mark in added] == ["only Linux has it: reads /proc"]


def test_the_whole_run_needs_a_browser_and_a_node_none(monkeypatch):
    monkeypatch.setattr(packages, "browser", lambda: "")
    assert "chromium" in packages.missing(packages.BROWSER)
    assert "chromium" not in packages.missing()
    monkeypatch.setattr(packages, "browser", lambda: "/usr/bin/chromium")
    assert "chromium" not in packages.missing(packages.BROWSER)


@pytest.mark.parametrize("there", [True, False])
def test_a_missing_browser_driver_is_installed(there, monkeypatch, capfd):
    done = []
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda _: object() if there else None)
    monkeypatch.setattr(
        suite.subprocess, "run", lambda command, **_: done.append(command) or SimpleNamespace(returncode=1)
    )
    suite.drive_browser()
    assert [command[-3:] for command in done] == [["--require-hashes", "-r", "tests/browser.lock"]] * (not there)
    assert ("are left out" in capfd.readouterr().out) == (not there)


@pytest.mark.parametrize("lacking", ["ptp", "host-local", "loopback"])
def test_a_node_needs_each_cni_plugin_that_containerd_calls(lacking, monkeypatch, tmp_path):
    """containerd calls `loopback` even if no CNI configuration names it."""
    for name in {"ptp", "host-local", "loopback"} - {lacking}:
        (tmp_path / name).touch()
    monkeypatch.setattr(packages, "CNI_PLUGINS", tmp_path)
    assert "containernetworking-plugins" in packages.missing()


@pytest.mark.parametrize("package", ["iproute2", "iptables"])
def test_a_node_needs_the_programs_of_its_network(package, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert package in packages.missing()


@pytest.mark.parametrize(("arguments", "is_named"), [(["--no-node"], False), ([], True)])
def test_a_cluster_builds_exactly_the_programs_it_names(arguments, is_named, monkeypatch):
    monkeypatch.setattr(build.Path, "exists", lambda _: False)
    named = []
    monkeypatch.setattr(up, "say", named.append)
    monkeypatch.setattr(up, "ControlPlane", no_cluster)
    monkeypatch.setattr(up.foreign, "refuse", lambda: None)
    monkeypatch.setattr(up.os, "geteuid", lambda: 0)
    monkeypatch.setattr(build, "folder", lambda _: build.Path("/nonexistent"))
    with pytest.raises(NoClusterError):
        up.start(up.read_options(arguments))
    [line] = named
    assert "kube-apiserver" in line
    assert ("containerd" in line) is is_named
    assert "prometheus" not in line
    assert "karpenter" not in line


class NoClusterError(Exception):
    """Raised in place of starting a cluster."""


def no_cluster(**_):
    raise NoClusterError


@pytest.mark.parametrize("marks", [("real",), ("real", "node")])
def test_suites_without_a_node_do_not_build_its_programs(marks, monkeypatch):
    built = []
    monkeypatch.setattr(build, "program", lambda name, _=None: built.append(name))
    monkeypatch.setattr(fixtures.packages, "require", lambda: built.append("packages"))
    item = SimpleNamespace(get_closest_marker=lambda name: name in marks or None)
    option = SimpleNamespace(collectonly=False)
    fixtures.pytest_collection_finish(SimpleNamespace(config=SimpleNamespace(option=option), items=[item]))
    assert {"kube-apiserver", "helm", "drawbridge-scheduler"} <= set(built)
    assert ("karpenter" in built) is ("node" in marks)
    assert ("prometheus" in built) is ("node" in marks)
    assert ("packages" in built) is ("node" in marks)
