"""The same objects as a Helm chart."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import TYPE_CHECKING, Any

from cli.installation.besides import adapting, driving, guarding, on_looking, on_nodes, protecting
from cli.installation.bridge import EXTENDER, at_the_door, beside, promising
from cli.installation.gate import registrations, rest
from cli.installation.naming import IMAGES, LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from webhook.state import Configuration


def make_chart(folder: Path, config: str, source: Configuration) -> None:
    from cli.chart import IMAGE, PLACE, SCHEDULER_IMAGE, fill
    from webhook.admission import Registration, registration
    from webhook.claims import taint_rule

    base = rest(PLACE, IMAGE, config)
    guards = guarding(PLACE, ())
    objects = {
        "base": list(base),
        "onlooker": list(on_looking(PLACE, IMAGE)),
        "node-agent": list(on_nodes(PLACE, IMAGE)),
        "driver": list(driving(IMAGE)),
        "adapter": list(adapting(IMAGE)),
        "guards": list(guards),
        "protected-claims": list(protecting()),
        "fence": [taint_rule("__DRIVER__")],
        "webhooks": registrations(source, devices=False),
        "devices": registrations(source, devices=True),
    }
    for way, quota, seen in product((EXTENDER, "apart", "plugin"), ("", "-quota"), ("", "-promises")):
        bridges = list(beside(PLACE, IMAGE, SCHEDULER_IMAGE, way))
        if quota:
            bridges += list(at_the_door(bridges, PLACE))
            bridges.append(registration.at_quotas(Registration(namespace=PLACE)))
        if seen:
            bridges += list(promising(bridges, PLACE))
        objects[f"{way}{quota}{seen}"] = bridges
    # What is between the two comes with the bridge; of the agent there is another form.
    agents = deepcopy(objects["node-agent"])
    list(promising(agents, PLACE))
    objects["node-agent-promises"] = agents
    image = IMAGES.pattern
    patterns = {"image": image, "bridge.schedulerImage": image, "namespace": LABEL.pattern}
    fill(folder, objects, _file_in(objects["base"]), patterns)


def _file_in(objects: Iterable[dict[str, Any]]) -> str:
    """The configuration that is installed with these objects."""
    [data] = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
    text: str = data["drawbridge.yaml"]
    return text
