"""Two systems or vendors on one pod, keys of old versions, and keys that no driver serves."""

from tests.corpus.move import GPU, Case, asking, moved
from tests.webhook.pods import pod

KOORD = "koord-scheduler"
SHARE = {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "8Gi"}
RESERVED = {"scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector": {"a": "b"}}'}


def several(*limits, **more):
    return {"apiVersion": "v1", "kind": "Pod", **pod(*limits, **more)}


CASES = [
    Case("a share", several(SHARE, scheduler=KOORD), "translated"),
    *(
        Case(f"a share beside {key}", several(SHARE, {key: 1}, scheduler=KOORD), "left", (key, "koordinator.sh/gpu-memory: same reason as"))
        for key in ("cambricon.com/mlu", "huawei.com/Ascend910C", "huawei.com/npu-core", "metax-tech.com/sgpu", "dcu.com/gpu", "iluvatar.ai/gpu")
    ),
    Case("the reason is the MLU", several(SHARE, {"cambricon.com/mlu": 1}, scheduler=KOORD), "left", "koordinator.sh/gpu-core: cambricon.com/mlu keeps the pod with scheduler", never="`schedulers:"),
    Case("a share beside an MLU in one container", several(SHARE | {"cambricon.com/mlu": 1}, scheduler=KOORD), "left", "cambricon.com/mlu"),
    Case("whole cards beside an MLU, by plugins", several({GPU: 1}, {"cambricon.com/mlu": 1}), "translated", "cambricon.com/mlu", moved("a")),
    Case("a reservation keeps the scheduler", several(SHARE, scheduler=KOORD, annotations=RESERVED), "left", ()),
    *(
        Case(f"before 1.0: {name}", several({f"kubernetes.io/{name}": 100}, scheduler=KOORD), "left", f"use koordinator.sh/{name}")
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
    ),
    Case("before 1.0 and after", several(SHARE | {"kubernetes.io/gpu-core": 50}, scheduler=KOORD), "left", "before Koordinator 1.0"),
    Case("a GPU for a virtual machine", asking(key="nvidia.com/pgpu"), "left", "virtual machine", never="did you mean"),
    Case("beside a GPU", several({GPU: 1, "nvidia.com/pgpu": 1}), "left", "virtual machine"),
    *(
        Case(f"Ascend: {key}", asking(key=key), "left", says, never="no class")
        for key, says in (("huawei.com/Ascend910C", "`ascend.products`"), ("huawei.com/npu", "the key names no model"))
    ),
    Case("Ascend: any 910", asking(key="huawei.com/Ascend910"), "translated", "npu.huawei.com"),
    Case("Ascend of a model", asking(key="huawei.com/Ascend310P"), "translated"),
    *(
        Case(f"a key that no table has: {key}", asking(key=key), "unknown", key)
        for key in ("example.com/gpu", "habana.ai/gaudi2x", "acme.io/npu", "nvidia.com/gpux")
    ),
]  # fmt: skip
