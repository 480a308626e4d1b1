"""Each help has two examples that run. The command `version` prints what --version prints, and more."""

import shlex
import shutil
from pathlib import Path

import pytest

from cli.main import COMMANDS, GROUPS, command_of
from dra.server import CURRENT, NEWEST, OLDEST, SUPPORTED
from tests.cli.running import empty_directory, run, run_json  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("empty_directory")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
ALL_EXAMPLES = [example for name in COMMANDS for example in command_of(name).examples]
# Commands that run until they are stopped, or that need a node. The tests only parse their options.
ENDLESS_COMMANDS = ("dashboard", "standalone", "webhook", "allocator", "driver", "node-agent --mark")


def words_of(example):
    """Return the words of drawbridge's part of an example, as a shell splits them, without the redirection."""
    command = example.rpartition("| ")[2] if example.startswith("kubectl") else example.partition(" |")[0]
    program, *words = shlex.split(command.partition(" >")[0])
    assert program == "drawbridge"
    return words


@pytest.fixture
def example_files(empty_directory):  # noqa: F811
    """The files that the examples name."""
    (empty_directory / "deploy").mkdir()
    for folder in ("cases", "rules", "fleet"):
        shutil.copytree(EXAMPLES / folder, empty_directory / folder)
    for source, name in (
        ("pods/nvidia-training.yaml", "deploy/training.yaml"),
        ("pods/hami-exclusive.yaml", "pod.yaml"),
        ("why/dump.yaml", "dump.yaml"),
        ("configuration.yaml", "drawbridge.yaml"),
    ):
        shutil.copy(EXAMPLES / source, empty_directory / name)
    (empty_directory / "webhook.log").write_text("")
    fleet = "\n---\n".join(path.read_text() for path in sorted((EXAMPLES / "fleet").glob("*.yaml")))
    (empty_directory / "fleet.yaml").write_text(fleet)


def test_every_help_has_two_examples_of_its_own_command():
    for name in COMMANDS:
        examples = command_of(name).examples
        assert [words_of(example)[0] for example in examples] == [name, name]
        assert all(f"  {example}\n" in run(name, "--help").stdout for example in examples)


@pytest.mark.parametrize(
    "example",
    [
        example
        for example in ALL_EXAMPLES
        if not example.startswith(tuple(f"drawbridge {name}" for name in ENDLESS_COMMANDS))
    ],
)
def test_each_example_of_a_command_that_ends_runs(example_files, example):
    result = run(*words_of(example))
    assert result.exit_code in (0, 1), result.stderr
    assert result.stdout


@pytest.mark.parametrize(
    "example",
    [
        example
        for example in ALL_EXAMPLES
        if example.startswith(tuple(f"drawbridge {name}" for name in ENDLESS_COMMANDS))
    ],
)
def test_the_options_in_examples_of_endless_commands_are_valid(example):
    name, *words = words_of(example)
    command_of(name).make_context(name, words)


def test_the_version_command_and_option_print_the_same_version():
    version = run("--version").stdout.split()[-1]
    assert run("version").stdout.startswith(f"drawbridge {version}\nKubernetes 1.34 to 1.")
    assert run_json("version")[1]["version"] == version


def test_pages_and_commands_name_the_same_versions_of_kubernetes():
    for page in ("README.md", "CHANGELOG.md", "docs/versions.md"):
        assert SUPPORTED in " ".join((ROOT / page).read_text().split()), page
    assert f"Kubernetes {SUPPORTED}\n" in run("version").stdout
    assert SUPPORTED in " ".join(run("check", "--help").stdout.split())
    assert SUPPORTED in run("check", "--kubernetes", "1.99", "-f", "-").output
    assert SUPPORTED in run("check", "--kubernetes", "2.0", "-f", "-").output


def test_a_minor_is_a_beta_until_its_release():
    assert SUPPORTED.startswith(f"1.{OLDEST} to 1.{CURRENT}")
    assert SUPPORTED.endswith(f", 1.{NEWEST} (beta)") == (NEWEST > CURRENT)


def test_the_help_lists_each_command_once_in_its_group():
    text = run("--help").stdout
    titles = [f"\n{group}:\n" for group in GROUPS]
    assert sorted(text.index(title) for title in titles) == [text.index(title) for title in titles]
    for group, title in zip(GROUPS, titles, strict=True):
        section = text.partition(title)[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(GROUPS[group])


def test_no_option_is_hidden_or_has_a_second_long_name():
    options = [
        (name, option) for name in COMMANDS for option in command_of(name).params if option.opts[0].startswith("-")
    ]
    with_two_names = [
        (name, option.opts) for name, option in options if sum(opt.startswith("--") for opt in option.opts) > 1
    ]
    assert (with_two_names, [(name, option.opts) for name, option in options if option.hidden]) == ([], [])


OF_STEPS = {"plan": "--check", "pr": "--charts", "accept": "--image", "status": "--accepted"}


@pytest.mark.parametrize("step", OF_STEPS)
def test_the_help_of_a_step_of_a_move_lists_only_its_own_options(step):
    text = run("migrate", step, "--help").stdout
    assert [option for option in OF_STEPS.values() if f" {option} " in text] == [OF_STEPS[step]]
    assert f"drawbridge migrate {step} " in text
