"""Devices that a container takes without asking for them: variables and runtime classes."""

from tests.corpus.move import GPU, Case, asking, moved


def seeing(name, value="all", amount=0, **spec):
    value_ = asking(amount, **spec)
    value_["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return value_


CASES = [
    Case("a variable that lets all cards in", seeing("NVIDIA_VISIBLE_DEVICES"), "left", "NVIDIA_VISIBLE_DEVICES"),
    Case("beside a request it is not news", asking(1), "translated", around=moved("a"), never="VISIBLE"),
    Case("a plain pod is passed by", asking(0), "silent"),
    Case("a request beside the variable", seeing("NVIDIA_VISIBLE_DEVICES", amount=1), "translated", GPU, around=moved("a")),
]  # fmt: skip
