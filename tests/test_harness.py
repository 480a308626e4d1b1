"""What the harness of the tests does itself: counts results, skips tests, and lists what a machine lacks for a real cluster."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e import build, fixtures, up
from e2e.ground import packages
from tests import oracles

ROOT = Path(__file__).parent.parent
OUTCOMES = {
    "good": "def test_one(): pass\ndef test_two(): pass",
    "bad": "def test_one(): pass\ndef test_two(): assert False",
    "broken_import": "import nothing_of_this_name",
    "broken_fixture": "import pytest\n@pytest.fixture\ndef f(): 1 / 0\ndef test_one(f): pass",
    "skipped": "import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no reason')",
    "known": "import pytest\n@pytest.mark.xfail\ndef test_one(): assert False\ndef test_two(): pass",
}


@pytest.mark.whole
@pytest.mark.parametrize(("files", "numbers"), [(OUTCOMES, "5 4"), ({"empty": ""}, "0 1")], ids=["mixed", "no tests"])
def test_a_run_writes_how_many_tests_passed_and_failed(files, numbers, tmp_path):
    for name, content in files.items():
        (tmp_path / f"test_{name}.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", f"--confcutdir={tmp_path}", f"--rootdir={ROOT}"]
    options = ["--no-skips", "--continue-on-collection-errors", f"--results={tmp_path}/numbers"]
    subprocess.run([*command, *options, str(tmp_path)], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    assert (tmp_path / "numbers").read_text() == f"{numbers}\n"


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
    ("marks", "expected_names"), [("oracle", ["short"]), ("oracle or long", ["short", "long"]), ("", ["short", "long"])]
)
def test_only_a_mark_expression_without_long_leaves_out_long_tests(pytestconfig, marks, expected_names):
    hook = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_collection_modifyitems
    items = [SimpleNamespace(name="short", nodeid="tests/a", get_closest_marker=lambda _: None)]
    items += [SimpleNamespace(name="long", nodeid="tests/b", get_closest_marker={"long": True}.get)]
    deselected_items = []

    def deselected(items):
        deselected_items.extend(items)

    hooks = SimpleNamespace(pytest_deselected=deselected)
    hook(SimpleNamespace(option=SimpleNamespace(markexpr=marks), hook=hooks), items)
    assert [item.name for item in items] == expected_names
    assert len(items) + len(deselected_items) == 2


def test_a_test_for_linux_is_skipped_elsewhere_with_its_reason(pytestconfig, monkeypatch):
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    monkeypatch.setattr(conftest.sys, "platform", "darwin")
    added_marks = []
    mark = {"linux": SimpleNamespace(args=("reads /proc",))}
    items = [
        SimpleNamespace(nodeid="tests/a", get_closest_marker=marks.get, add_marker=added_marks.append)
        for marks in (mark, {})
    ]
    conftest.pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace(markexpr="")), items)
    assert [mark.kwargs["reason"] for mark in added_marks] == ["only Linux has it: reads /proc"]


def test_a_test_that_no_suite_would_run_is_refused(pytestconfig):
    hook = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_collection_modifyitems
    item = SimpleNamespace(nodeid="e2e/test_a.py::test_a", get_closest_marker=lambda _: None)
    with pytest.raises(pytest.UsageError, match="move it to tests/e2e"):
        hook(SimpleNamespace(option=SimpleNamespace(markexpr="")), [item])


def test_chromium_is_missing_only_where_a_browser_is_required(monkeypatch):
    monkeypatch.setattr(packages, "browser", lambda: "")
    assert "chromium" in packages.missing(packages.BROWSER)
    assert "chromium" not in packages.missing()
    monkeypatch.setattr(packages, "browser", lambda: "/usr/bin/chromium")
    assert "chromium" not in packages.missing(packages.BROWSER)


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


def test_an_interrupted_referee_answers_the_next_questions_itself(tmp_path, monkeypatch):
    """The first answer is not JSON, so the first call ends before it has read the second answer."""
    program = tmp_path / "referee"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfor line in sys.stdin:\n    print(line.strip().replace('7', 'x'), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(oracles, "build_program", lambda _: program)
    referee = oracles.Oracle("a program")
    try:
        with pytest.raises(json.JSONDecodeError):
            referee.ask_all([{"asked": 7}, {"asked": 1}])
        assert referee.ask_all([{"asked": 2}]) == [{"asked": 2}]
    finally:
        referee.close()
