"""Requests for devices without a DRA driver stay on the pod, and its other requests are translated."""

import pytest

from tests.webhook.dialects.rows import rows_not_translated
from tests.webhook.pods import WHOLE_GPUS, exactly, outcomes, patched, pod, untouched, verdict_of
from webhook.dialects.undriven import DIALECT

ROWS = rows_not_translated(DIALECT, {"hygon.com/dcunum": 1})
HAMI_SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}


def test_the_reason_names_the_device():
    verdict = verdict_of(pod({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32}))
    assert untouched(verdict)
    assert "Moore Threads GPU" in verdict.warnings[0]
    assert outcomes(verdict) == {"mthreads.com/vgpu": "left", "mthreads.com/sgpu-memory": "left"}


def test_the_reason_names_an_existing_driver_unknown_to_drawbridge():
    verdict = verdict_of(pod({"enflame.com/drs-gcu": 1, "enflame.com/gcu-memory": 6144}))
    assert untouched(verdict)
    assert "HAMi's Enflame DRA driver is unknown to drawbridge" in verdict.warnings[0]
    assert "no DRA driver" not in verdict.warnings[0]


@pytest.mark.parametrize("key", ["mthreads.com/vgpu", "vke.volcengine.com/rdma"])
def test_a_gpu_beside_another_vendors_device_is_translated(key):
    manifest = pod({"nvidia.com/gpu": 1, key: 1})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert patched(manifest, verdict)["spec"]["containers"][0]["resources"]["limits"] == {key: 1}


def test_a_scheduler_that_counts_another_vendors_device_is_kept():
    manifest = pod(HAMI_SHARE, {"hygon.com/dcunum": 1}, scheduler="hami-scheduler")
    verdict = verdict_of(manifest)
    assert verdict.templates
    assert patched(manifest, verdict)["spec"]["schedulerName"] == "hami-scheduler"


def test_a_share_of_vgpu_manager_is_no_misspelling_of_hamis():
    keys = ("nvidia.com/vgpu-number", "nvidia.com/vgpu-cores", "nvidia.com/vgpu-memory")
    verdict = verdict_of(pod(dict.fromkeys(keys, 1)))
    assert untouched(verdict)
    assert outcomes(verdict) == dict.fromkeys(keys, "left")
    assert "vgpu-manager's DRA driver" in verdict.warnings[0]


def test_each_key_of_another_device_has_its_own_reason():
    verdict = verdict_of(pod({"dsa.intel.com/wq-user-dedicated": 1, "sgx.intel.com/epc": 1}))
    details = {decision.key: decision.detail for decision in verdict.decisions}
    assert "SGX" in details["sgx.intel.com/epc"]
    assert "DSA" in details["dsa.intel.com/wq-user-dedicated"]
