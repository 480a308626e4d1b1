"""Random values for every row of every dialect: no exception, no half translation and no claim that the API server refuses."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra import validation
from tests.draws import draws
from tests.webhook.pods import KEY, SIZES, UNKNOWN, configured, container, patched
from webhook.claims import template
from webhook.dialects import VOCABULARIES
from webhook.dialects.table import Position
from webhook.state import State
from webhook.translate.translate import translate

ROWS = [row for dialect in VOCABULARIES for row in dialect.table.keys]
PARTS = st.sampled_from(["x1", "1g.5gb", "1g.5gb.me", "nps1", "nps4", "a10_24g", "..", "-", "X" * 200])
AMOUNTS = st.sampled_from([0, 1, 2, 3, 33, 50, 100, 129, 150, 1024, 2**31, 2**63, -1, "1k", "0.5", "1500m", "3Gi", "", "9" * 70, None, True, [], 1.0])  # fmt: skip
TEXTS = st.sampled_from(["true", "false", "", ",", "A100,", "a, b", "mig", "{}", "[]", '{"gpu":', '{"rdma":{"allocateStrategy":"ApplyForAll"}}', "1g.5gb", "huawei", "in\x00side", "\ud800", '"]) || true // "', "x" * 20_000, None, 7, {"a": 1}])  # fmt: skip
SCHEDULERS = st.sampled_from(["", "default-scheduler", "volcano", "koord-scheduler", "hami-scheduler", "kai-scheduler"])
CONFIGURATIONS = st.sampled_from(
    [
        configured(),
        configured(
            **SIZES,
            meanings={"nvidia.com/gpu": "whole", "amd.com/gpu": "whole", "gpu.intel.com/xe": "whole"},
            amazon={"coresPerDevice": 2, "deviceGroups": True},
            nics={"pools": ["nvidia.com/hostdev", "openshift.io/x1"]},
            schedulers={"volcano": {"likeCluster": True}},
        ),
    ]
)
PLACES = {Position.ANNOTATION: "annotations", Position.LABEL: "labels"}


def names(place: Position) -> st.SearchStrategy[str]:
    every = sorted(row.name for row in ROWS if row.place is place)
    return st.tuples(st.sampled_from(every), PARTS).map(lambda pair: re.sub("<[A-Za-z]+>", lambda _: pair[1], pair[0]))


LIMITS = st.dictionaries(names(Position.RESOURCE), AMOUNTS, max_size=4)


@st.composite
def pods(draw) -> dict:
    metadata = {"name": "p", "namespace": "n"}
    for place, member in PLACES.items():
        metadata[member] = draw(st.dictionaries(names(place), TEXTS, max_size=3))
    containers = [container(f"c{i}", limits) for i, limits in enumerate(draw(st.lists(LIMITS, min_size=1, max_size=3)))]
    init = [container("i0", draw(LIMITS))] if draw(st.booleans()) else []
    selector = draw(st.dictionaries(names(Position.NODE_SELECTOR), TEXTS, max_size=3))
    spec = {"containers": containers, "initContainers": init, "nodeSelector": selector}
    return {"metadata": metadata, "spec": spec | {"schedulerName": draw(SCHEDULERS)}}


def amounts(pod: dict) -> dict[str, set[str]]:
    every = (*pod["spec"]["containers"], *pod["spec"]["initContainers"])
    return {container["name"]: set(container["resources"].get("limits", {})) for container in every}


@given(pods(), CONFIGURATIONS)
@settings(max_examples=draws(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_odd_values_are_translated_wholly_or_not_at_all(pod, configuration):
    done = translate(pod, State(configuration=configuration, fleet=UNKNOWN, keys=(KEY,)), namespace="n")
    for name, spec in done.templates.items():
        assert validation.errors(template.object_of(name, spec, "n")) == []
    if done.refusals:
        assert not done.operations
        assert not done.templates
    before, after = amounts(pod), amounts(patched(pod, done) if done.operations else pod)
    for container_name, keys in before.items():
        gone, kept = keys - after[container_name], after[container_name]
        assert bool(gone) <= bool(done.templates), "keys only go where claims come"
        for dialect in VOCABULARIES:
            mine = {row.name for row in dialect.table.keys if row.place is Position.RESOURCE and "<" not in row.name}
            if gone & mine:
                asking = {key for key in kept & mine if not _common(key)}
                assert not asking, f"half of {dialect.table.name} on {container_name}"


def _common(key: str) -> bool:
    return any(row.name == key and row.common for row in ROWS)
