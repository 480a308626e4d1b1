"""Network devices for RDMA, SR-IOV and EFA. A pool is a resource name under which a device plugin offers a group of such devices."""

import json

from msgspec.structs import replace

from cluster import manifests
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.corpus.move.plugins import config_map
from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import (
    EXAMPLES,
    WHOLE_GPUS,
    devices,
    exactly,
    outcomes,
    patched,
    pod,
    read_objects,
    untouched,
    verdict_of,
)
from webhook.dialects.nics import DIALECT
from webhook.state import Inventory, installed

EFA, POOL, RDMA = "vpc.amazonaws.com/efa", "openshift.io/mlxnics", "rdma/hca_shared_devices_a"
POOL_PREFIXES = ("openshift.io/", "intel.com/", "mellanox.com/", "k8s.cni.cncf.io/", "nvidia.com/sriov_")
POOLS_WITHOUT_PREFIX = ("nvidia.com/hostdev", "nvidia.com/sriovlegacy", "nvidia.com/mlnxnics")
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
ROWS = {
    EFA: Row(pod({EFA: 1}), "approximated"),
    **{
        f"{prefix}<pool>": Row(pod({f"{prefix}x": 1}), "translated", {"nics": {"pools": [f"{prefix}x"]}}, f"{prefix}x")
        for prefix in POOL_PREFIXES
    },
    **{name: Row(pod({name: 1}), "translated", {"nics": {"pools": [name]}}) for name in POOLS_WITHOUT_PREFIX},
    "rdma/<pool>": Row(pod({RDMA: 1}), "approximated", {"nics": {"targets": {RDMA: "nic"}}}, RDMA),
    **rows_not_translated(DIALECT, {EFA: 1}),
}


def test_a_pool_is_requested_by_name_and_multus_networks_stay():
    manifest = pod({POOL: 2}, annotations={"k8s.v1.cni.cncf.io/networks": "a,b"})
    verdict = verdict_of(manifest, nics={"pools": [POOL]})
    selector = f'device.attributes["k8s.cni.cncf.io"].?resourceName.orValue("") == "{POOL}"'
    assert exactly(verdict) == [{"class": SRIOV, "count": 2, "cel": [selector]}]
    assert patched(manifest, verdict)["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "a,b"


def test_an_undeclared_device_plugin_pool_is_left_unchanged():
    assert untouched(verdict_of(pod({POOL: 2}), nics={"pools": ["openshift.io/other"]}))


def test_a_network_device_of_nvidias_is_not_a_gpu():
    verdict = verdict_of(pod({"nvidia.com/hostdev": 1}), **WHOLE_GPUS)
    assert outcomes(verdict) == {"nvidia.com/hostdev": "left"}


def test_a_gpu_beside_shared_rdma_handles_is_translated_without_them():
    manifest = pod({"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 1})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated", "rdma/hca_shared_devices_a": "left"}
    assert patched(manifest, verdict)["spec"]["containers"][0]["resources"]["limits"] == {
        "rdma/hca_shared_devices_a": 1
    }


def test_a_gpu_beside_a_vpc_address_is_translated_without_it():
    manifest = pod({"nvidia.com/gpu": 1, "vpc.amazonaws.com/pod-eni": 1})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated", "vpc.amazonaws.com/pod-eni": "left"}
    [left_decision] = [decision for decision in verdict.decisions if decision.outcome == "left"]
    assert left_decision.detail == "it requests an address of the VPC, not a device"


# A target: which devices of a driver a claim requests.
HCA = {
    "name": "hca",
    "driver": "dra.net",
    "classes": ["dranet"],
    "selectors": ['device.attributes["dra.net"].?ifName.orValue("") in ["rdma0", "rdma1"]'],
    "true": ["rdma"],
    "request": "nic",
}
RDMA_AS_HCA = {"targets": [HCA], "nics": {"targets": {RDMA: "hca"}}}
POOL_WITH_TARGET = {
    "targets": [{**HCA, "name": "pool", "driver": SRIOV, "classes": [SRIOV], "true": []}],
    "nics": {"targets": {POOL: "pool"}},
}


def fleet_with_nics(*, shared=False):
    """Return a fleet with the network devices of the example drivers; with `shared`, the devices allow multiple allocations."""
    objects = read_objects(manifests.read([EXAMPLES / "drivers" / "dra.net.yaml", EXAMPLES / "drivers" / "nodes.yaml"]))
    slices = []
    for slice_ in objects.of_type(ResourceSlice):
        devices = tuple(replace(device, allow_multiple_allocations=shared or None) for device in slice_.spec.devices)
        slices.append(replace(slice_, spec=replace(slice_.spec, devices=devices)))
    return Inventory.gather(objects.of_type(DeviceClass), slices, objects.of_type(Node))


def test_a_pool_with_a_target_uses_its_targets_selectors():
    verdict = verdict_of(pod({POOL: 2}), **POOL_WITH_TARGET)
    assert exactly(verdict) == [{"class": SRIOV, "count": 2, "cel": HCA["selectors"]}]
    assert outcomes(verdict) == {POOL: "translated"}


def test_multus_networks_beside_a_targeted_pool_are_an_approximation():
    verdict = verdict_of(pod({POOL: 2}, annotations={"k8s.v1.cni.cncf.io/networks": "a,b"}), **POOL_WITH_TARGET)
    assert outcomes(verdict) == {POOL: "approximated"}
    assert any(f"only where the driver publishes the name {POOL}" in decision.detail for decision in verdict.decisions)


def test_a_device_in_place_of_handles_pairs_with_a_gpu():
    target = {**HCA, "attributes": ["resource.kubernetes.io/pcieRoot"]}
    joint = [{"primary": "nvidia.com/gpu", "secondary": RDMA}]
    file = {"targets": [target], "nics": {"targets": {RDMA: "hca"}}, "joint": joint, **WHOLE_GPUS}
    verdict = verdict_of(pod({"nvidia.com/gpu": 1, RDMA: 1}), **file)
    assert [request["class"] for request in exactly(verdict)] == ["gpu.nvidia.com", "dranet"]
    assert devices(verdict)["constraints"][0]["matchAttribute"] == "resource.kubernetes.io/pcieRoot"
    assert any("fewer pods fit on a node" in decision.detail for decision in verdict.decisions)


def test_a_host_network_pod_requests_no_device_that_changes_namespace():
    file = {**RDMA_AS_HCA, "targets": [{**HCA, "moved": True}]}
    assert untouched(verdict_of(pod({RDMA: 1}, hostNetwork=True), **file))
    assert not untouched(verdict_of(pod({RDMA: 1}), **file))


def test_shared_rdma_handles_with_a_target_become_one_whole_device():
    for fleet in (Inventory(), fleet_with_nics()):
        verdict = verdict_of(pod({RDMA: 1000}), fleet=fleet, **RDMA_AS_HCA)
        does_rdma = 'device.attributes["dra.net"].?rdma.orValue(false)'
        assert exactly(verdict) == [{"class": "dranet", "count": 1, "cel": [*HCA["selectors"], does_rdma]}]
        assert outcomes(verdict) == {RDMA: "approximated"}
        assert any("fewer pods fit on a node" in decision.detail for decision in verdict.decisions)


def test_shared_rdma_handles_become_all_shareable_devices_of_the_pool():
    verdict = verdict_of(pod({RDMA: 1}), fleet=fleet_with_nics(shared=True), **RDMA_AS_HCA)
    (request,) = devices(verdict)["requests"]
    assert request["exactly"]["allocationMode"] == "All"
    texts = [selector["cel"]["expression"] for selector in request["exactly"]["selectors"]]
    assert texts[-1] == "device.allowMultipleAllocations"
    assert texts[0] == HCA["selectors"][0]
    assert any("shared with other pods" in decision.detail for decision in verdict.decisions)


def test_shared_rdma_handles_are_left_unchanged_if_approximations_are_disabled():
    assert untouched(verdict_of(pod({RDMA: 1}), approximations="leave", **RDMA_AS_HCA))


def test_a_left_pool_is_reported_with_its_plugins_selectors():
    plugin_config = {"resourceList": [{"resourceName": "mlxnics", "selectors": {"vendors": ["15b3"], "isRdma": True}}]}
    maps = [
        config_map("device-plugin-config", "kube-system", edge_1=plugin_config),
        config_map("rdma", config={"configList": [{"resourceName": "hca_shared_devices_a", "devices": ["ib0"]}]}),
    ]
    for map_ in maps:
        map_["data"] = {name: json.loads(text) for name, text in map_["data"].items()}
    fleet = Inventory(assumes=True, installed=installed(maps))
    (pool_decision,) = verdict_of(pod({POOL: 1}), fleet=fleet).decisions
    assert "selects vendors=15b3 isRdma in ConfigMap kube-system/device-plugin-config (edge-1)" in pool_decision.detail
    assert f"`nics: {{pools: [{POOL}]}}`" in pool_decision.detail
    (rdma_decision,) = verdict_of(pod({RDMA: 1}), fleet=fleet).decisions
    assert "all pods share ifNames=ib0 in ConfigMap gpu-operator/rdma (config)" in rdma_decision.detail


def test_gpus_and_adapters_are_paired_under_one_switch():
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    verdict = verdict_of(pod({"nvidia.com/gpu": 8, EFA: 32}), joint=joint, **WHOLE_GPUS)
    (spec,) = verdict.templates.values()
    requests = spec["spec"]["devices"]["requests"]
    assert [request["exactly"]["count"] for request in requests] == [1, 4] * 4
    assert len(spec["spec"]["devices"]["constraints"]) == 4
    assert len(verdict.added_claims) == 2


def test_a_host_network_pod_keeps_its_adapter():
    verdict = verdict_of(pod({EFA: 1}, hostNetwork=True))
    assert untouched(verdict)
    assert "hostNetwork" in verdict.warnings[0]


def test_a_paired_key_is_left_unchanged_with_its_partner():
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    verdict = verdict_of(
        pod({"nvidia.com/gpu": 1, EFA: 1}), joint=joint, quota=frozenset({"requests.nvidia.com/gpu"}), **WHOLE_GPUS
    )
    assert untouched(verdict)
