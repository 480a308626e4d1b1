"""All commands give the same answer about random objects (`tests/agreement.py`)."""

import random

import pytest

from tests.agreement import COMMANDS, OTHERS, Scene, ask
from tests.cli.agreement_scenes import (
    EMPTY_CONFIGURATION,
    FLEET,
    FPGA,
    TRANSLATING_CONFIGURATION,
    WARNING_CONFIGURATION,
    WHOLE_GPU_CONFIGURATION,
    WORKLOAD_KINDS,
    namespace,
    object_of_kind,
    reporting_only_cpu,
)
from tests.cli.agreement_worlds import random_cluster_scene
from tests.contradictions import contradictions
from tests.corpus.move import GPU, migrated_fleet, node
from tests.forms import differing_forms, forms
from tests.limits import draws
from webhook.dialects import Position
from webhook.state import Configuration

# A dialect is the table of the keys of one system. A name with "<" is a pattern, not a key.
DIALECT_KEYS = [row for dialect in Configuration().dialects for row in dialect.keys if "<" not in row.name]
KEYS = sorted({row.name for row in DIALECT_KEYS if row.place is Position.RESOURCE})
ANNOTATIONS = sorted({row.name for row in DIALECT_KEYS if row.place is Position.ANNOTATION})
CONFIGURATIONS = (
    *(None, None, EMPTY_CONFIGURATION, WHOLE_GPU_CONFIGURATION, TRANSLATING_CONFIGURATION, WARNING_CONFIGURATION),
    *(EMPTY_CONFIGURATION | {"approximations": "leave"}, EMPTY_CONFIGURATION | {"unresolved": "refuse"}),
)
AMOUNTS = ("1",) * 12 + ("2", "4", "4", "100", "0", "500m", "1k", "${N}", 2, None)


def random_scene(number):
    """Return a random pod or workload with nodes, a mode and a configuration."""
    draw = random.Random(number)

    def seldom(value, share=0.1):
        return value if draw.random() < share else {}

    keys = draw.sample(KEYS, draw.choice((1, 1, 2, 3)))
    keys = [*draw.choice((keys, [GPU, *keys[1:]])), *seldom([FPGA], 0.15)]
    containers = []
    for name in ("c0", "c1")[: draw.choice((1, 1, 2))]:
        amounts = {key: draw.choice(AMOUNTS) for key in draw.sample(keys, draw.randint(1, len(keys)))}
        parts = draw.choice((("limits",), ("limits",), ("limits", "requests"), ("requests",)))
        containers.append({"name": name, "image": "i", "resources": dict.fromkeys(parts, amounts)})
    if seldom([1]):
        containers[0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    spec = {"containers": containers}
    spec |= seldom({"nodeName": "a"}) | seldom({"nodeSelector": {"pool": "x"}}) | seldom({"schedulerName": "volcano"})
    spec |= seldom({"resources": {"limits": {keys[0]: "1"}}})
    labels = {"a": "b"} | seldom({"kueue.x-k8s.io/queue-name": "q"})
    template = {"metadata": {"labels": labels}, "spec": spec}
    template["metadata"] |= seldom({"annotations": {draw.choice(ANNOTATIONS): draw.choice(("1", "50", "a"))}}, 0.25)
    plugins = [node(name, **{key: draw.choice((1, 4)) for key in keys}) for name in ("p", "q")]
    fleet = draw.choice(
        ((), plugins, FLEET, (*FLEET, *plugins), reporting_only_cpu(*migrated_fleet("a", "b", extended=GPU)))
    )
    configuration, surroundings = draw.choice(CONFIGURATIONS), []
    mode = draw.choice(("enforce", "observe", "warn", "off"))
    source = draw.choice(("", "", "label", "object", "option"))
    if source == "label":
        surroundings.append(namespace(mode))
    elif source:
        configuration = (configuration or EMPTY_CONFIGURATION) | {"mode": mode}
    if source == "object":
        surroundings, configuration = [configuration], None
    obj = object_of_kind(*draw.choice((("v1", "Pod"), *WORKLOAD_KINDS)), template, labels=labels)
    return Scene(obj, surroundings, fleet, configuration, draw.choice((0, 0, 0, 34, 36)))


def commands_of(number):
    """Return the commands to run for this draw: every command, and one server or output format."""
    return (*COMMANDS, OTHERS[number % len(OTHERS)])


@pytest.mark.parametrize("number", range(draws(200)))
def test_the_commands_agree_about_random_objects(number, tmp_path):
    assert not contradictions(ask(random_scene(number), tmp_path, commands_of(number)))


@pytest.mark.parametrize("number", range(draws(80)))
def test_each_command_gives_one_answer_about_all_forms_of_an_object(number, tmp_path):
    scene = random_cluster_scene(number) if number % 2 else random_scene(number)
    other_forms = [*forms(scene)][number % 4 :: 4]
    answers = ask(scene, tmp_path, commands := commands_of(number))
    assert [(name, differing_forms(answers, ask(form, tmp_path, commands))) for name, form in other_forms] == [
        (name, []) for name, _ in other_forms
    ]


CLUSTER_NUMBERS_THAT_FAILED_ONCE = {57, 79, 163}


@pytest.mark.parametrize("number", sorted({*range(draws(80)), *CLUSTER_NUMBERS_THAT_FAILED_ONCE}))
def test_the_commands_agree_in_random_clusters(number, tmp_path):
    assert not contradictions(ask(random_cluster_scene(number), tmp_path, commands_of(number)))
