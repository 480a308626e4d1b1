"""Devices without a DRA driver are left, and the other requests of the pod are translated."""

import pytest

from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import KOORD, WHOLE, exactly, outcomes, patched, pod, untouched, verdict_of
from webhook.dialects.plugins.undriven import DIALECT

ROWS = rows_left(DIALECT, {"hygon.com/dcunum": 1})
HAMI_SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}


def test_the_reason_names_the_device():
    done = verdict_of(pod({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32}))
    assert untouched(done)
    assert "Moore Threads GPU" in done.warnings[0]
    assert outcomes(done) == {"mthreads.com/vgpu": "left", "mthreads.com/sgpu-memory": "left"}


def test_the_reason_names_an_existing_driver_unknown_to_drawbridge():
    done = verdict_of(pod({"enflame.com/drs-gcu": 1, "enflame.com/gcu-memory": 6144}))
    assert untouched(done)
    assert "HAMi's Enflame DRA driver is unknown to drawbridge" in done.warnings[0]
    assert "no DRA driver" not in done.warnings[0]


@pytest.mark.parametrize("key", ["mthreads.com/vgpu", "vke.volcengine.com/rdma"])
def test_a_gpu_beside_another_vendors_device_is_translated(key):
    value = pod({"nvidia.com/gpu": 1, key: 1})
    done = verdict_of(value, **WHOLE)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert patched(value, done)["spec"]["containers"][0]["resources"]["limits"] == {key: 1}


def test_a_scheduler_that_counts_another_vendors_device_is_kept():
    value = pod(HAMI_SHARE, {"hygon.com/dcunum": 1}, scheduler="hami-scheduler")
    done = verdict_of(value)
    assert done.templates
    assert patched(value, done)["spec"]["schedulerName"] == "hami-scheduler"


def test_without_another_vendors_device_the_scheduler_is_replaced():
    value = pod(HAMI_SHARE, scheduler="hami-scheduler")
    assert patched(value, verdict_of(value))["spec"]["schedulerName"] == "default-scheduler"


def test_koordinator_keys_on_another_vendor_are_left():
    value = pod({KOORD + "gpu.shared": 1, KOORD + "gpu-memory": "8Gi", "metax-tech.com/sgpu": 1})
    done = verdict_of(value)
    assert untouched(done)
    assert set(outcomes(done).values()) == {"left"}
    assert "metax-tech.com/sgpu" in done.warnings[0]


def test_koordinator_keys_on_amd_gpus_are_left():
    done = verdict_of(pod({KOORD + "rdma": 100, "amd.com/gpu": 1}, scheduler="koord-scheduler"))
    assert untouched(done)
    assert outcomes(done) == {KOORD + "rdma": "left", "amd.com/gpu": "left"}


def test_a_share_of_vgpu_manager_is_no_misspelling_of_hamis():
    keys = ("nvidia.com/vgpu-number", "nvidia.com/vgpu-cores", "nvidia.com/vgpu-memory")
    done = verdict_of(pod(dict.fromkeys(keys, 1)))
    assert untouched(done)
    assert outcomes(done) == dict.fromkeys(keys, "left")
    assert "vgpu-manager's DRA driver" in done.warnings[0]
