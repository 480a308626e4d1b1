"""Devices that a container takes without asking for them: variables and runtime classes."""

from tests.corpus.move import GPU, Case, asking, moved


def seeing(name, value="all", amount=0, **spec):
    value_ = asking(amount, **spec)
    value_["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return value_


SAID = ("takes devices without a request", "ask for devices instead")
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
    Case("a runtime class that is no text", asking(0, runtimeClassName=["nvidia"]), "refused"),
    Case("variables that are no list", {**asking(0), "spec": {"containers": [{"name": "c", "image": "i", "env": {"a": 1}}]}}, "refused"),
    Case("a request beside no variable", asking(1), "translated", around=moved("a"), never="VISIBLE"),
    Case("a plain pod is passed by", asking(0), "silent"),
    Case("a request beside the variable", seeing("NVIDIA_VISIBLE_DEVICES", amount=1), "translated", GPU, around=moved("a"), never="without a request"),
]  # fmt: skip
