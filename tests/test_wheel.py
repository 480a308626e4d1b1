"""The wheel works without the checkout: it contains all files that it reads, and its pins are enough."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory):
    """Return the folder of the unpacked wheel, as an installer would make it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = folder.glob("*.whl")
    site = folder / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return site


def run(site, *arguments):
    """Run the command from the unpacked wheel, outside of the checkout."""
    code = (
        "import sys; from pathlib import Path; import cli.main\n"
        "assert Path(cli.main.__file__).is_relative_to(sys.argv.pop(1)), cli.main.__file__\n"
        "cli.main.main(prog_name='drawbridge')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(site), *arguments],
        cwd=site.parent,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_installed_command_prints_its_manifests(unpacked_wheel):
    result = run(unpacked_wheel, "manifests", "--image", "registry.example/drawbridge:1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "kind: Deployment" in result.stdout


@pytest.mark.whole
def test_the_installed_command_runs_its_demo(unpacked_wheel):
    result = run(unpacked_wheel, "demo", "--once")
    assert (result.returncode, result.stderr) == (0, "")
    assert "placed" in result.stdout


def pins(name):
    return dict(re.findall(r"^([a-zA-Z0-9_.-]+)==([^ \\;]+)", (ROOT / name).read_text(), flags=re.MULTILINE))


def test_the_image_and_the_tests_use_the_same_pins():
    image, tests = pins("requirements.runtime.lock"), pins("requirements.lock")
    assert {name: version for name, version in image.items() if tests.get(name) != version} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = {re.split(r"[<>=]", entry)[0].lower() for entry in project["dependencies"]}
    assert dependencies - {name.lower() for name in image} == set()


INSTALL = re.compile(r"(?:\bpip|\buv pip)\b[^&|;]*? (?:install|sync) [^&|;]*")


@pytest.mark.parametrize(("name", "count"), [("Dockerfile", 3), ("Makefile", 6), ("action.yml", 1)])
def test_every_package_that_is_installed_has_a_hash(name, count):
    """Otherwise the index, or whoever stands in for it, decides what runs in a build. Our own package is not downloaded."""
    source = re.sub(r"\\\n\s*", "", (ROOT / name).read_text())
    commands = [command for line in source.splitlines() for command in INSTALL.findall(line) if line[:1] != "#"]
    assert len(commands) == count
    unchecked = [
        command
        for command in commands
        if "--require-hashes" not in command and not re.search(r" --no-deps .*(?: -e \.|/\*\.whl)\s*$", command)
    ]
    assert unchecked == []


def test_the_build_tools_are_those_of_the_tests():
    tools, tests = pins("requirements.build.lock"), pins("requirements.lock")
    assert {"hatchling", "uv"} <= tools.keys()
    assert {name: version for name, version in tools.items() if tests.get(name) != version} == {}


LOCKS = ["requirements.lock", "requirements.build.lock", "requirements.runtime.lock", "tests/browser.lock"]


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash(name):
    blocks = re.split(r"\n(?=[a-zA-Z0-9])", (ROOT / name).read_text().strip())
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
