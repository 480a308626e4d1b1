"""Keys that a DeviceClass serves through extendedResourceName."""

import pytest

from tests.webhook.pods import (
    WHOLE_GPUS,
    configured,
    container,
    example_fleet,
    outcomes,
    patched,
    pod,
    untouched,
    verdict_of,
)
from tests.webhook.translate.samples import GPU, fleet_serving
from webhook.dialects.table import Outcome
from webhook.state import State
from webhook.state.features import Features
from webhook.translate.translate import translate


def test_a_key_served_by_a_class_is_left_unchanged_silently():
    verdict = verdict_of(
        pod(GPU, scheduler="hami-scheduler"), fleet=fleet_serving("nvidia.com/gpu"), extendedResources={}, **WHOLE_GPUS
    )
    assert untouched(verdict)
    assert verdict.warnings == ()
    assert outcomes(verdict) == {"nvidia.com/gpu": "served"}


@pytest.mark.parametrize(
    "manifest",
    [
        pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}),
        pod(GPU, nodeSelector={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}),
    ],
    ids=["count with memory", "count on nodes with partitions"],
)
def test_a_class_serves_only_plain_counts(manifest):
    verdict = verdict_of(manifest, fleet=fleet_serving("nvidia.com/gpu"), extendedResources={}, **WHOLE_GPUS)
    assert outcomes(verdict)["nvidia.com/gpu"] != "served"


def test_a_zero_count_beside_a_served_key_changes_nothing():
    fleet = fleet_serving("nvidia.com/mig-1g.5gb")
    verdict = verdict_of(pod({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 1}), fleet=fleet, extendedResources={})
    assert untouched(verdict)
    details = {decision.key: decision.detail for decision in verdict.decisions}
    assert details["nvidia.com/mig-1g.5gb"] == "DeviceClass gpu.nvidia.com serves it through extendedResourceName"


def test_classes_serve_no_key_if_the_gate_is_off():
    verdict = verdict_of(pod(GPU), fleet=fleet_serving("nvidia.com/gpu"), features=Features(minor=35), **WHOLE_GPUS)
    assert verdict.changed
    gate_off = Features(minor=37, gates={"DRAExtendedResource": False})
    assert verdict_of(pod(GPU), fleet=fleet_serving("nvidia.com/gpu"), features=gate_off, **WHOLE_GPUS).changed


def test_two_keys_that_classes_serve_are_always_left_unchanged():
    """If c1 were translated, a second review would take the keys of c0 for the device plugin's and translate them."""
    for other_limits in ({}, {"nvidia.com/gpu": 1, "nvidia.com/mig-3g.20gb": 1, "nvidia.com/gpumem": 0}):
        containers = [container("c0", {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}), container("c1", other_limits)]
        manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
        state = State(configuration=configured(), fleet=example_fleet())
        verdict = translate(manifest, state, namespace="n")
        outcomes_of_c0 = {
            decision.key: decision.outcome for decision in verdict.decisions if decision.container == "c0"
        }
        assert outcomes_of_c0.keys() == {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb"}
        assert set(outcomes_of_c0.values()) <= {Outcome.SERVED, Outcome.LEFT}
        if verdict.changed:
            assert not translate(patched(manifest, verdict), state, namespace="n").operations
