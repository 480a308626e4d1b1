"""`python -m tests.ask_files` reports contradictions between commands and commands that fail, and nothing else."""

from unittest.mock import patch

import pytest

from tests import ask_files
from tests.agreement import simulate
from tests.cli.agreement_scenes import FLEET_WITH_DRIVER, ONE_GPU, POD, WHOLE_GPU_CONFIGURATION, object_of_kind
from tests.cli.running import manifest


@pytest.fixture
def options(tmp_path):
    """Return the arguments for a folder with a pod and an unreadable file, with a fleet and a configuration."""
    (tmp_path / "folder").mkdir()
    manifest(tmp_path / "folder" / "pod.json", object_of_kind(*POD, ONE_GPU))
    (tmp_path / "folder" / "bad.yaml").write_text("{")
    fleet, configuration = (
        manifest(tmp_path / "fleet.yaml", *FLEET_WITH_DRIVER),
        manifest(tmp_path / "whole.yaml", WHOLE_GPU_CONFIGURATION),
    )
    return [str(tmp_path / "folder"), "--fleet", str(fleet), "--config", str(configuration)]


def test_the_exit_status_is_0_if_all_commands_agree(options, capsys):
    assert ask_files.main(options) == 0
    assert capsys.readouterr().out == "1 objects, 1 questions, 0 contradictions, 1 files skipped\n"


def test_a_contradiction_is_reported_with_both_answers(options, capsys):
    def webhook(*scene):
        return simulate(*scene)._replace(refused=True)

    with patch.object(ask_files, "OTHERS", (webhook,)):
        assert ask_files.main(options) == 1
    contradiction, translate_line, webhook_line, count_line = capsys.readouterr().out.splitlines()
    assert contradiction.endswith("pod.json: Pod/n/w (fleet.yaml) (whole.yaml): refused: webhook True, translate False")
    assert translate_line.startswith("    translate: translated")
    assert webhook_line.startswith("    webhook: None")
    assert count_line == "1 objects, 1 questions, 1 contradictions, 1 files skipped"


def test_a_command_that_fails_is_reported(options, capsys):
    def webhook(*_):
        raise RuntimeError("no answer")

    with patch.object(ask_files, "OTHERS", (webhook,)):
        assert ask_files.main(options) == 1
    assert "webhook fails: RuntimeError: no answer" in capsys.readouterr().out
