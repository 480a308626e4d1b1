"""The scheduler of a translated pod, and the fence of the bridge."""

from pathlib import Path

import pytest

from cluster import manifests
from tests.webhook.pods import WHOLE, patched, pod, untouched, verdict_of
from tests.webhook.translate.samples import GPU, annotations
from webhook.names import DECISION

BRIDGE = Path(__file__).parents[3] / "manifests/bridge"


def test_an_undeclared_scheduler_is_not_trusted():
    manifest = pod(GPU, scheduler="mine")
    assert untouched(verdict_of(manifest, **WHOLE))
    verdict = verdict_of(manifest, **WHOLE, schedulers={"mine": {"likeCluster": True}})
    assert patched(manifest, verdict)["spec"]["schedulerName"] == "mine"


@pytest.mark.parametrize("way", ["scheduler.yaml", "plugin/scheduler.yaml", "apart/scheduler.yaml"])
def test_a_pod_for_the_shipped_scheduler_is_translated_without_configuration(way):
    stored = [document.object for document in manifests.read([BRIDGE / way])]
    [text] = [
        stored_object["data"]["scheduler.yaml"] for stored_object in stored if stored_object["kind"] == "ConfigMap"
    ]
    [document] = manifests.parse(text)
    [profile] = document.object["profiles"]
    manifest = pod(GPU, scheduler=profile["schedulerName"])
    assert DECISION in annotations(patched(manifest, verdict_of(manifest, **WHOLE)))


def test_only_the_dialects_own_scheduler_is_replaced():
    own = pod({"nvidia.com/gpumem": 1}, scheduler="hami-scheduler")
    assert (
        patched(own, verdict_of(own, targetScheduler="other", schedulers={"other": {"likeCluster": True}}))["spec"][
            "schedulerName"
        ]
        == "other"
    )
    foreign = pod(GPU, scheduler="koord-scheduler")
    assert patched(foreign, verdict_of(foreign, **WHOLE))["spec"]["schedulerName"] == "koord-scheduler"


def test_a_pod_that_is_only_partly_translated_keeps_its_scheduler():
    manifest = pod(
        {"nvidia.com/gpumem": 1},
        {"nvidia.com/gpumem": 1, "nvidia.com/mig-1g.5gb.shared": 1},
        scheduler="hami-scheduler",
    )
    patched_spec = patched(manifest, verdict_of(manifest))["spec"]
    assert patched_spec["schedulerName"] == "hami-scheduler"
    assert patched_spec["containers"][1] == manifest["spec"]["containers"][1]


def test_pods_for_managed_devices_get_the_scheduler_of_the_bridge():
    bridge = {"schedulerName": "drawbridge-scheduler", "drivers": ["gpu.nvidia.com"]}
    value, other = pod(GPU), pod({"nvidia.com/gpumem": 1})
    patched_pod = patched(value, verdict_of(value, **WHOLE, bridge=bridge))
    assert patched_pod["spec"]["schedulerName"] == "drawbridge-scheduler"
    assert "schedulerName" not in patched(other, verdict_of(other, bridge=bridge))["spec"]
    unable = {"drawbridge-scheduler": {"claims": False}}
    assert "schedulerName" not in patched(value, verdict_of(value, **WHOLE, bridge=bridge, schedulers=unable))["spec"]


def test_only_claims_for_the_bridge_tolerate_the_fence():
    bridge = {"schedulerName": "drawbridge-scheduler", "drivers": ["gpu.nvidia.com"]}
    known = {"drawbridge-scheduler": {"likeCluster": True}}
    toleration = {"key": "drawbridge.dev/fence", "operator": "Exists", "effect": "NoSchedule"}

    def tolerations(value, **more):
        verdict = verdict_of(value, **WHOLE, schedulers=known, bridge=bridge | more)
        [spec] = verdict.templates.values()
        [request] = spec["spec"]["devices"]["requests"]
        return request["exactly"].get("tolerations", [])

    assert tolerations(pod(GPU), fence=True) == [toleration]
    assert tolerations(pod(GPU, scheduler="drawbridge-scheduler"), fence=True) == [toleration]
    assert tolerations(pod(GPU)) == [toleration]
    assert tolerations(pod(GPU), drivers=["other.example.com"]) == []
    assert tolerations(pod(GPU), fence=True, drivers=["other.example.com"]) == []
