"""The scheduler of a translated pod, and its toleration of the taint on devices of the bridge, which is drawbridge's scheduler for some drivers."""

from pathlib import Path

from cluster import manifests
from tests.webhook.pods import WHOLE_GPUS, patched, pod, untouched, verdict_of
from tests.webhook.translate.samples import GPU, annotations
from webhook.names import DECISION

BRIDGE = Path(__file__).parents[3] / "manifests/bridge"


def test_an_undeclared_scheduler_is_not_trusted():
    manifest = pod(GPU, scheduler="mine")
    assert untouched(verdict_of(manifest, **WHOLE_GPUS))
    verdict = verdict_of(manifest, **WHOLE_GPUS, schedulers={"mine": {"likeCluster": True}})
    assert patched(manifest, verdict)["spec"]["schedulerName"] == "mine"


def test_a_pod_for_the_shipped_scheduler_is_translated_without_configuration():
    stored = [document.object for document in manifests.read([BRIDGE / "scheduler.yaml"])]
    [text] = [
        stored_object["data"]["scheduler.yaml"] for stored_object in stored if stored_object["kind"] == "ConfigMap"
    ]
    [document] = manifests.parse(text)
    [profile] = document.object["profiles"]
    manifest = pod(GPU, scheduler=profile["schedulerName"])
    assert DECISION in annotations(patched(manifest, verdict_of(manifest, **WHOLE_GPUS)))


def test_only_the_dialects_own_scheduler_is_replaced():
    hami_pod = pod({"nvidia.com/gpumem": 1}, scheduler="hami-scheduler")
    assert (
        patched(hami_pod, verdict_of(hami_pod, targetScheduler="other", schedulers={"other": {"likeCluster": True}}))[
            "spec"
        ]["schedulerName"]
        == "other"
    )
    pod_of_another_scheduler = pod(GPU, scheduler="koord-scheduler")
    assert (
        patched(pod_of_another_scheduler, verdict_of(pod_of_another_scheduler, **WHOLE_GPUS))["spec"]["schedulerName"]
        == "koord-scheduler"
    )


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
    managed, unmanaged = pod(GPU), pod({"nvidia.com/gpumem": 1})
    patched_pod = patched(managed, verdict_of(managed, **WHOLE_GPUS, bridge=bridge))
    assert patched_pod["spec"]["schedulerName"] == "drawbridge-scheduler"
    assert "schedulerName" not in patched(unmanaged, verdict_of(unmanaged, bridge=bridge))["spec"]
    unable = {"drawbridge-scheduler": {"claims": False}}
    assert (
        "schedulerName"
        not in patched(managed, verdict_of(managed, **WHOLE_GPUS, bridge=bridge, schedulers=unable))["spec"]
    )


def test_only_claims_for_the_bridge_tolerate_the_fence():
    bridge = {"schedulerName": "drawbridge-scheduler", "drivers": ["gpu.nvidia.com"]}
    declared = {"drawbridge-scheduler": {"likeCluster": True}}
    toleration = {"key": "drawbridge.dev/fence", "operator": "Exists", "effect": "NoSchedule"}

    def tolerations(value, **bridge_fields):
        verdict = verdict_of(value, **WHOLE_GPUS, schedulers=declared, bridge=bridge | bridge_fields)
        [spec] = verdict.templates.values()
        [request] = spec["spec"]["devices"]["requests"]
        return request["exactly"].get("tolerations", [])

    assert tolerations(pod(GPU), fence=True) == [toleration]
    assert tolerations(pod(GPU, scheduler="drawbridge-scheduler"), fence=True) == [toleration]
    assert tolerations(pod(GPU)) == [toleration]
    assert tolerations(pod(GPU), drivers=["other.example.com"]) == []
    assert tolerations(pod(GPU), fence=True, drivers=["other.example.com"]) == []
