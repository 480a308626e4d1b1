"""All commands give the same answer about an object; `tests/agreement.py` runs them.

The objects are the workloads of the example files, the cases of clusters during a migration (`tests/corpus/move`), and objects about which
the commands once disagreed (`tests/cli/named_scenes.py`).
"""

import json
import random

import pytest

from cluster import manifests
from tests.agreement import COMMANDS, FLEET_KINDS, Scene, as_list, ask, demo
from tests.cli.agreement_scenes import EMPTY_CONFIGURATION
from tests.cli.named_scenes import NAMED_SCENES
from tests.cli.running import run
from tests.contradictions import contradictions
from tests.corpus import move
from tests.limits import draws
from tests.webhook.pods import EXAMPLES


def split_off_fleet(objects):
    """Return two lists: the objects that do not describe the fleet, and the nodes, slices and classes."""
    surroundings, fleet = [], []
    for obj in objects:
        (fleet if obj["kind"] in FLEET_KINDS else surroundings).append(obj)
    return surroundings, fleet


def migration_cases():
    for kind, table in move.tables().items():
        for case in table:
            surroundings, fleet = split_off_fleet(case.cluster_objects)
            configuration = EMPTY_CONFIGURATION | dict(case.configuration) if case.configuration else None
            yield pytest.param(
                Scene(case.given, surroundings, fleet, configuration, case.minor), id=f"{kind}: {case.name}"
            )


def example_files():
    fleet = [document.object for document in manifests.read([str(EXAMPLES / "fleet")])]
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        objects = [document.object for document in manifests.read([str(path)]) if "kind" in document.object]
        workloads = [obj for obj in objects if '"containers"' in json.dumps(obj) and obj["kind"] != "DaemonSet"]
        surroundings, own_fleet = split_off_fleet(obj for obj in objects if obj not in workloads)
        for number, obj in enumerate(workloads):
            yield pytest.param(
                Scene(obj, surroundings, own_fleet or fleet), id=f"{path.relative_to(EXAMPLES)} {number}"
            )


SCENES = [*migration_cases(), *example_files()]


@pytest.mark.whole
@pytest.mark.parametrize("scene", random.Random(0).sample(SCENES, draws(len(SCENES))))
def test_the_commands_agree_about_migration_cases_and_example_files(scene, tmp_path):
    assert not contradictions(ask(scene, tmp_path))


@pytest.mark.parametrize("name", NAMED_SCENES)
def test_the_commands_agree_about_each_named_scene(name, tmp_path):
    outcome, code, fits, scene = NAMED_SCENES[name]
    answers = ask(scene, tmp_path, (*COMMANDS, demo) if scene.fleet and scene.object["kind"] == "Pod" else COMMANDS)
    assert answers["translate"].outcome == outcome, answers["translate"]
    assert {code} - {""} <= answers["translate"].codes, answers["translate"]
    assert answers["simulate"].fits is fits, answers["simulate"]
    assert not contradictions(answers)
    expected_count = f"1 {outcome}, 0 without" if outcome != "silent" else "rewritten: 1 without"
    assert expected_count in last_line_of_report(scene, tmp_path)


def last_line_of_report(scene, folder):
    """Return the last line of `translate -o report` about the scene's object. All other objects are the inventory."""
    (folder / "object.json").write_text(as_list([scene.object]))
    (folder / "inventory.json").write_text(as_list([*scene.surroundings, *scene.fleet]))
    options = ["--config", folder / "configuration.yaml"] if scene.configuration else []
    inputs = ["-f", folder / "object.json", "--inventory", folder / "inventory.json"]
    return run("translate", *inputs, *options, "-o", "report").stdout.splitlines()[0]
