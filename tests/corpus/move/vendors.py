"""Two systems or vendors on one pod, keys of old versions, and keys that no driver serves."""

from tests.corpus.move import GPU, Case, migrated_fleet, requesting_pod
from tests.webhook.pods import pod

KOORDINATOR = "koord-scheduler"
KOORDINATOR_SHARE = {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "8Gi"}
RESERVATION_ANNOTATIONS = {"scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector": {"a": "b"}}'}


def pod_with_limits(*limits, **more):
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, **more)}


CASES = [
    Case("a share by Koordinator", pod_with_limits(KOORDINATOR_SHARE, scheduler=KOORDINATOR), "translated"),
    *(
        Case(f"a share by Koordinator beside {key}", pod_with_limits(KOORDINATOR_SHARE, {key: 1}, scheduler=KOORDINATOR), "left", (key, "koordinator.sh/gpu-memory: same reason as"))
        for key in ("cambricon.com/mlu", "huawei.com/Ascend910C", "huawei.com/npu-core", "metax-tech.com/sgpu", "dcu.com/gpu", "iluvatar.ai/gpu")
    ),
    Case("an MLU is the reason that a share stays", pod_with_limits(KOORDINATOR_SHARE, {"cambricon.com/mlu": 1}, scheduler=KOORDINATOR), "left", "koordinator.sh/gpu-core: cambricon.com/mlu keeps the pod with scheduler", never="`schedulers:"),
    Case("a share by Koordinator beside an MLU in one container", pod_with_limits(KOORDINATOR_SHARE | {"cambricon.com/mlu": 1}, scheduler=KOORDINATOR), "left", "cambricon.com/mlu"),
    Case("whole cards beside an MLU, by plugins", pod_with_limits({GPU: 1}, {"cambricon.com/mlu": 1}), "translated", "cambricon.com/mlu", migrated_fleet("a")),
    Case("a reservation keeps the scheduler", pod_with_limits(KOORDINATOR_SHARE, scheduler=KOORDINATOR, annotations=RESERVATION_ANNOTATIONS), "left", ()),
    *(
        Case(f"a key of Koordinator before 1.0: {name}", pod_with_limits({f"kubernetes.io/{name}": 100}, scheduler=KOORDINATOR), "left", f"use koordinator.sh/{name}")
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
    ),
    Case("keys of Koordinator before and after 1.0", pod_with_limits(KOORDINATOR_SHARE | {"kubernetes.io/gpu-core": 50}, scheduler=KOORDINATOR), "left", "before Koordinator 1.0"),
    Case("a GPU for a virtual machine", requesting_pod(key="nvidia.com/pgpu"), "left", "virtual machine", never="did you mean"),
    Case("a GPU, and a GPU for a virtual machine", pod_with_limits({GPU: 1, "nvidia.com/pgpu": 1}), "left", "virtual machine"),
    *(
        Case(f"an Ascend key without a known target: {key}", requesting_pod(key=key), "left", says, never="no class")
        for key, says in (("huawei.com/Ascend910C", "`ascend.products`"), ("huawei.com/npu", "the key names no model"))
    ),
    Case("Ascend 910 without a variant", requesting_pod(key="huawei.com/Ascend910"), "translated", "npu.huawei.com"),
    Case("an Ascend model", requesting_pod(key="huawei.com/Ascend310P"), "translated"),
    *(
        Case(f"a key that no table has: {key}", requesting_pod(key=key), "unknown", key)
        for key in ("example.com/gpu", "habana.ai/gaudi2x", "acme.io/npu", "nvidia.com/gpux")
    ),
]  # fmt: skip
