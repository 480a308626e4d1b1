"""Devices that a container takes without a request: variables and runtime classes."""

from tests.corpus.move import GPU, Case, asking, moved, node


def seeing(name, value="all", amount=0, **spec):
    value_ = asking(amount, **spec)
    value_["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return value_


def runtime(name, handler, **scheduling):
    given = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler}
    return given | ({"scheduling": scheduling} if scheduling else {})


OLD = (node("o", {"pool": "old"}, gpu=8), node("o2", {"pool": "old"}, gpu=8))
MIXED = (*moved("a", labels={"pool": "new"}), *OLD)
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TAINTED = {**OLD[0], "metadata": {"name": "t", "labels": {"pool": "old"}}, "spec": {"taints": [TAINT]}}
SAID = ("takes devices without a request", "request devices instead")
BESIDE = asking(1, runtimeClassName="nvidia")
CASES = [
    *(
        Case(f"{vendor}'s variable", seeing(f"{vendor}_VISIBLE_DEVICES"), "left", (f"{vendor}_VISIBLE_DEVICES: it", *SAID))
        for vendor in ("NVIDIA", "HABANA", "ASCEND", "AMD", "MTHREADS")
    ),
    *(Case(f"runtime class {name}", asking(0, runtimeClassName=name), "left", ("runtimeClassName: it", *SAID)) for name in ("nvidia", "habana", "ascend", "amd")),
    *(Case(f"the value {value!r} lets none in", seeing("NVIDIA_VISIBLE_DEVICES", value, runtimeClassName="nvidia"), "silent") for value in ("void", "none", "")),
    Case("some cards by their numbers", seeing("NVIDIA_VISIBLE_DEVICES", "0,1"), "left", SAID),
    Case("the variable counts before the runtime class", seeing("NVIDIA_VISIBLE_DEVICES", runtimeClassName="nvidia"), "left", "NVIDIA_VISIBLE_DEVICES: it", never="runtimeClassName"),
    Case("a runtime class beside a request", BESIDE, "translated", around=moved("a"), never="without a request"),
    Case("another runtime class", asking(0, runtimeClassName="gvisor"), "silent"),
    *(
        Case(f"a RuntimeClass whose handler is {handler}", asking(0, runtimeClassName="fast"), "left", ("runtimeClassName: it", *SAID), (runtime("fast", handler),))
        for handler in ("nvidia", "nvidia-cdi", "habana")
    ),
    Case("a RuntimeClass nvidia with another handler", asking(0, runtimeClassName="nvidia"), "silent", around=(runtime("nvidia", "runc"),)),
    Case("a RuntimeClass of nodes that moved", asking(1, runtimeClassName="fast"), "translated", around=(*MIXED, runtime("fast", "x", nodeSelector={"pool": "new"}))),
    Case("a RuntimeClass of nodes that stay", asking(1, runtimeClassName="fast"), "left", "0 of", around=(*MIXED, runtime("fast", "x", nodeSelector={"pool": "old"}))),
    Case("a RuntimeClass that says nothing of nodes", asking(1, runtimeClassName="fast"), "left", "2 of 3", around=(*MIXED, runtime("fast", "x"))),
    Case("a RuntimeClass that tolerates a taint", asking(1, runtimeClassName="fast"), "left", "0 of", around=(*moved("a"), TAINTED, runtime("fast", "x", nodeSelector={"pool": "old"}, tolerations=[{"key": "gpu", "operator": "Exists"}]))),
    Case("a RuntimeClass of other nodes than the pod's", asking(1, runtimeClassName="fast", nodeSelector={"pool": "old"}), "refused", "RuntimeClass fast and the pod have different values of pool", around=(runtime("fast", "x", nodeSelector={"pool": "new"}),)),
    *(
        Case(f"a RuntimeClass with a garbled {word}", asking(1, runtimeClassName="fast"), "translated", around=(*moved("a"), {**runtime("fast", "x"), **garbled}))
        for word, garbled in (("handler", {"handler": ["nvidia"]}), ("scheduling", {"scheduling": {"nodeSelector": [1], "tolerations": {"a": 1}}}))
    ),
    Case("a runtime class that is not a text", asking(0, runtimeClassName=["nvidia"]), "silent"),
    Case("variables that are no list", {**asking(0), "spec": {"containers": [{"name": "c", "image": "i", "env": {"a": 1}}]}}, "silent"),
    Case("a request beside no variable", asking(1), "translated", around=moved("a"), never="VISIBLE"),
    Case("a plain pod is passed by", asking(0), "silent"),
    Case("a request beside the variable", seeing("NVIDIA_VISIBLE_DEVICES", amount=1), "translated", GPU, around=moved("a"), never="without a request"),
]  # fmt: skip
