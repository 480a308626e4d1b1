"""Random values for every key of every dialect (the table of one system's keys) cause no exception, no partial translation and no claim that the API server refuses."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dra import validation
from tests.webhook.pods import GPU_MODELS, SIGNING_KEY, UNKNOWN, configured, container, patched
from webhook.claims import template
from webhook.dialects import VOCABULARIES
from webhook.dialects.table import Position
from webhook.state import State
from webhook.translate.translate import translate

ROWS = [row for dialect in VOCABULARIES for row in dialect.table.keys]
PARTS_OF_NAMES = st.sampled_from(["x1", "1g.5gb", "1g.5gb.me", "nps1", "nps4", "a10_24g", "..", "-", "X" * 200])
AMOUNTS = st.sampled_from([0, 1, 2, 3, 33, 50, 100, 129, 150, 1024, 2**31, 2**63, -1, "1k", "0.5", "1500m", "3Gi", "", "9" * 70, None, True, [], 1.0])  # fmt: skip
TEXTS = st.sampled_from(["true", "false", "", ",", "A100,", "a, b", "mig", "{}", "[]", '{"gpu":', '{"rdma":{"allocateStrategy":"ApplyForAll"}}', "1g.5gb", "huawei", "in\x00side", "\ud800", '"]) || true // "', "x" * 20_000, None, 7, {"a": 1}])  # fmt: skip
SCHEDULERS = st.sampled_from(
    ["", "default-scheduler", *sorted(set().union(*[dialect.table.schedulers for dialect in VOCABULARIES]))]
)
CONFIGURATIONS = st.sampled_from(
    [
        configured(),
        configured(
            **GPU_MODELS,
            meanings={"nvidia.com/gpu": "whole", "amd.com/gpu": "whole", "gpu.intel.com/xe": "whole"},
            amazon={"coresPerDevice": 2, "deviceGroups": True},
            nics={"pools": ["nvidia.com/hostdev", "openshift.io/x1"]},
            schedulers={"volcano": {"likeCluster": True}},
        ),
    ]
)
METADATA_FIELDS = {Position.ANNOTATION: "annotations", Position.LABEL: "labels"}


def key_names(position: Position) -> st.SearchStrategy[str]:
    names = sorted(row.name for row in ROWS if row.place is position)
    return st.tuples(st.sampled_from(names), PARTS_OF_NAMES).map(
        lambda pair: re.sub("<[A-Za-z]+>", lambda _: pair[1], pair[0])
    )


LIMITS = st.dictionaries(key_names(Position.RESOURCE), AMOUNTS, max_size=4)


@st.composite
def pods(draw) -> dict:
    metadata = {"name": "p", "namespace": "n"}
    for position, field in METADATA_FIELDS.items():
        metadata[field] = draw(st.dictionaries(key_names(position), TEXTS, max_size=3))
    containers = [container(f"c{i}", limits) for i, limits in enumerate(draw(st.lists(LIMITS, min_size=1, max_size=3)))]
    init = [container("i0", draw(LIMITS))] if draw(st.booleans()) else []
    selector = draw(st.dictionaries(key_names(Position.NODE_SELECTOR), TEXTS, max_size=3))
    spec = {"containers": containers, "initContainers": init, "nodeSelector": selector}
    return {"metadata": metadata, "spec": spec | {"schedulerName": draw(SCHEDULERS)}}


def keys_by_container(pod: dict) -> dict[str, set[str]]:
    containers = (*pod["spec"]["containers"], *pod["spec"]["initContainers"])
    return {container["name"]: set(container["resources"].get("limits", {})) for container in containers}


@given(pods(), CONFIGURATIONS)
def test_random_pods_are_translated_wholly_or_not_at_all(pod, configuration):
    verdict = translate(pod, State(configuration=configuration, fleet=UNKNOWN, keys=(SIGNING_KEY,)), namespace="n")
    for name, spec in verdict.templates.items():
        assert validation.errors(template.object_of(name, spec, "n")) == []
    if verdict.refusals:
        assert not verdict.operations
        assert not verdict.templates
    keys_before, keys_after = (
        keys_by_container(pod),
        keys_by_container(patched(pod, verdict) if verdict.operations else pod),
    )
    for container_name, keys in keys_before.items():
        removed, remaining = keys - keys_after[container_name], keys_after[container_name]
        assert bool(removed) <= bool(verdict.templates), f"{container_name} lost keys, but no claim was added"
        for dialect in VOCABULARIES:
            dialect_keys = {
                row.name for row in dialect.table.keys if row.place is Position.RESOURCE and "<" not in row.name
            }
            if removed & dialect_keys:
                remaining_requests = {key for key in remaining & dialect_keys if not _is_common(key)}
                assert not remaining_requests, f"{container_name} lost only some of its keys of {dialect.table.name}"


def _is_common(key: str) -> bool:
    return any(row.name == key and row.common for row in ROWS)
