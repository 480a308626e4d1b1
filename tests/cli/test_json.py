"""docs/json.md against what the commands print."""

import json
import os
import re
from pathlib import Path

import pytest

from cli.main import COMMANDS as TABLE
from cli.main import command_of
from tests.cli.running import run, somewhere  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("somewhere")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
MODES, PODS, WHY = (str(EXAMPLES / name) for name in ("modes", "pods", "why"))
ROWS = dict(re.findall(r"^- (`.*?): (.*\n(?:  .*\n)*)", (ROOT / "docs" / "json.md").read_text(), re.MULTILINE))
COMMANDS = {
    "`translate`": ["translate", "-f", PODS],
    "`survey`": ["survey", "-f", PODS],
    "`check`": ["check", "-f", PODS],
    "`check --explain`": ["check", "--explain", "D001"],
    "`explain`": ["explain", "R023"],
    "`explain pod`": ["explain", "pod", "notebook", "-f", WHY],
    "`explain deployment`, and of every other kind of workload": ["explain", "deployment/training", "-f", PODS],
    "`explain claim`": ["explain", "claim", "notebook-gpu-7xk2p", "-f", WHY],
    "`explain device`": ["explain", "device", "node-b/gpu-1", "-f", WHY],
    "`allocate --node`": ["allocate", "-f", MODES, "--node", "gpu-node"],
    "`allocate --all-nodes`": ["allocate", "-f", MODES, "--all-nodes"],
    "`simulate` of a snapshot": ["simulate", "-f", MODES],
    "`simulate` of a workload": ["simulate", "--generate", "mig", "--pods", "5"],
    "`matrix`": ["matrix", "-f", MODES],
    "`nodes`": ["nodes", "-f", WHY],
    "`observed`": ["observed", os.devnull],
    "`quota`": ["quota", "-f", WHY],
    "`resize`": ["resize", "deployment/training", "nvidia.com/gpu=2", "-f", PODS],
    "`doctor`": ["doctor", "-f", MODES],
    "`uninstall`": ["uninstall"],
    "`node-agent`": ["node-agent", "--once", "--node-name", "n0", "--kubelet-dir", "away", "--cdi-dir", "away"],
    "`snapshot`": ["snapshot", "--to", "snapshot.json"],
    "`dialects`": ["dialects"],
    "`test`": ["test", str(EXAMPLES / "cases")],
    "`version`": ["version"],
}


# Members with names that are not ours, and objects of the API.
CHOSEN = ("items", "allocations", "nodes", "strategies", "features", "classes", "modes", "removed", "share", "capacity", "available", "attributes", "objects")  # fmt: skip


def names(text):
    """The keys of the document itself: those outside of brackets, and before a colon."""
    outside = re.sub(r"\([^)]*\)", "", text).partition(":")[0]
    return set(re.findall(r"`([A-Za-z]+)`", outside))


def keys(value):
    """Every key of an answer that is ours: objects of the API, and names that are not ours, are left out."""
    if isinstance(value, list):
        return {key for one in value for key in keys(one)}
    if not isinstance(value, dict):
        return set()
    inner = (member for name, member in value.items() if name not in CHOSEN)
    return set(value) | {key for member in inner for key in keys(member)}


@pytest.mark.parametrize("row", COMMANDS)
def test_every_document_has_the_keys_that_the_page_names(row):
    answer = json.loads(run(*COMMANDS[row], "-o", "json").stdout)
    assert set(answer) == names(ROWS[row])
    assert all(re.fullmatch(r"[a-z][A-Za-z]*", key) for key in keys(answer))


def test_the_page_names_every_command_that_answers_in_json():
    assert set(COMMANDS) == {row for row in ROWS if "`" in row}


def test_every_command_that_answers_in_json_is_on_the_page():
    told = {arguments[0] for arguments in COMMANDS.values()}
    untold = {name for name in TABLE if answers_in_json(name)} - told
    assert untold == set(), "a row in docs/json.md and one in COMMANDS above are missing"


def answers_in_json(name):
    forms = [option.type for option in command_of(name).params if option.name == "output"]
    return any("json" in form.choices for form in forms)


def test_a_replayed_workload_has_the_keys_that_the_page_names():
    answer = json.loads(run(*COMMANDS["`simulate` of a workload"], "-o", "json").stdout)
    (one,) = answer["strategies"].values()
    assert set(one) == set(re.findall(r"`([A-Za-z]+)`", ROWS["`simulate` of a workload"].partition("each with")[2]))
