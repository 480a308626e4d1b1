"""RDMA, SR-IOV and EFA by resource name."""

from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import WHOLE, actions, became, exactly, patched, pod, untouched
from webhook.dialects.plugins.nics import DIALECT

EFA, POOL, RDMA = "vpc.amazonaws.com/efa", "openshift.io/mlxnics", "rdma/hca_shared_devices_a"
POOLS = ("openshift.io/", "intel.com/", "mellanox.com/", "k8s.cni.cncf.io/", "nvidia.com/sriov_")
NAMES = ("nvidia.com/hostdev", "nvidia.com/sriovlegacy", "nvidia.com/mlnxnics")
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
ROWS = {
    EFA: Row(pod({EFA: 1}), "approximated"),
    **{
        f"{prefix}<pool>": Row(pod({f"{prefix}x": 1}), "translated", {"nics": {"pools": [f"{prefix}x"]}}, f"{prefix}x")
        for prefix in POOLS
    },
    **{name: Row(pod({name: 1}), "translated", {"nics": {"pools": [name]}}) for name in NAMES},
    "rdma/<pool>": Row(pod({RDMA: 1}), "approximated", {"nics": {"targets": {RDMA: "nic"}}}, RDMA),
    **rows_left(DIALECT, {EFA: 1}),
}


def test_a_pool_is_asked_for_by_its_published_name_and_multus_keeps_its_networks():
    value = pod({POOL: 2}, annotations={"k8s.v1.cni.cncf.io/networks": "a,b"})
    done = became(value, nics={"pools": [POOL]})
    guarded = f'device.attributes["k8s.cni.cncf.io"].?resourceName.orValue("") == "{POOL}"'
    assert exactly(done) == [{"class": SRIOV, "count": 2, "cel": [guarded]}]
    assert patched(value, done)["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "a,b"


def test_a_device_plugin_pool_that_is_not_declared_is_left_unchanged():
    assert untouched(became(pod({POOL: 2}), nics={"pools": ["openshift.io/other"]}))


def test_a_network_device_of_nvidias_is_no_gpu():
    done = became(pod({"nvidia.com/hostdev": 1}), **WHOLE)
    assert actions(done) == {"nvidia.com/hostdev": "left"}


def test_handles_of_shared_rdma_stay_and_the_gpu_beside_them_moves():
    value = pod({"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 1})
    done = became(value, **WHOLE)
    assert actions(done) == {"nvidia.com/gpu": "translated", "rdma/hca_shared_devices_a": "left"}
    assert patched(value, done)["spec"]["containers"][0]["resources"]["limits"] == {"rdma/hca_shared_devices_a": 1}


def test_an_address_of_the_vpc_stays_and_the_gpu_beside_it_moves():
    value = pod({"nvidia.com/gpu": 1, "vpc.amazonaws.com/pod-eni": 1})
    assert actions(became(value, **WHOLE)) == {"nvidia.com/gpu": "translated", "vpc.amazonaws.com/pod-eni": "left"}


def test_gpus_and_adapters_in_pairs_under_one_switch():
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    done = became(pod({"nvidia.com/gpu": 8, EFA: 32}), joint=joint, **WHOLE)
    (spec,) = done.templates.values()
    requests = spec["spec"]["devices"]["requests"]
    assert [one["exactly"]["count"] for one in requests] == [1, 4] * 4
    assert len(spec["spec"]["devices"]["constraints"]) == 4
    assert len(done.given) == 2


def test_an_adapter_is_not_moved_out_of_the_hosts_network():
    done = became(pod({EFA: 1}, hostNetwork=True))
    assert untouched(done)
    assert "hostNetwork" in done.warnings[0]


def test_a_paired_key_does_not_go_where_its_partner_stays():
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    done = became(
        pod({"nvidia.com/gpu": 1, EFA: 1}), joint=joint, quota=frozenset({"requests.nvidia.com/gpu"}), **WHOLE
    )
    assert untouched(done)
