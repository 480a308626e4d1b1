"""A Helm chart of the objects that `drawbridge manifests` prints, beside the hand-written files of `manifests/chart`.

The objects are put into the chart as they are, with words in place of what a release decides everywhere (namespace, images), and
the templates read them from there. The schema of the values names every key of a configuration, too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.contract import Broken
from cli.installation.naming import IMAGES, LABEL
from cli.installation.objects import BASE, EXTENDER, base, bridge, guards, promises, quotas, render

if TYPE_CHECKING:
    from webhook.state import Configuration

CHART = BASE.parent / "chart"
# Templates replace these words by values. No object has such words otherwise.
PLACE, IMAGE, SCHEDULER_IMAGE = "__NAMESPACE__", "__IMAGE__", "__SCHEDULER_IMAGE__"


def make_chart(folder: Path, text: str, configuration: Configuration) -> None:
    """Make the chart of a configuration (and its text) in a folder that is not there yet, whole or not at all."""
    from cluster import manifests
    from webhook import names

    objects = _objects(text, configuration)
    [data] = [one["data"] for one in objects["base"] if one["kind"] == "ConfigMap"]
    schema = json.dumps(_schema(), indent=1)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Broken(f"{folder} is there already, and is not an empty folder", "name a folder that is not there")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".chart-") as scratch:
            made = Path(scratch) / "chart"
            shutil.copytree(CHART, made)
            with (made / "Chart.yaml").open("a", encoding="utf-8") as chart:
                chart.write(f"version: {names.VERSION}\nappVersion: {names.VERSION}\n")
            (made / "values.schema.json").write_text(f"{schema}\n", encoding="utf-8")
            (made / "objects").mkdir()
            (made / "objects" / "configuration.yaml").write_text(data["drawbridge.yaml"], encoding="utf-8")
            for name, some in objects.items():
                (made / "objects" / f"{name}.yaml").write_text(manifests.dump(some), encoding="utf-8")
            made.rename(folder)
    except OSError as error:
        raise Broken(
            f"no chart can be made in {folder}: {error.strerror}", "name a folder that can be written"
        ) from None


def _objects(text: str, configuration: Configuration) -> dict[str, list[dict[str, Any]]]:
    """Render the objects by the names of the files that the templates read."""
    from webhook.admission import Registration, configurations, registration
    from webhook.claims import taint_rule

    optional = BASE.parent
    objects = {
        "base": base(PLACE, IMAGE, text),
        "onlooker": render(optional / "onlooker", PLACE, IMAGE),
        "node-agent": render(optional / "node-agent", PLACE, IMAGE),
        "driver": render(optional / "driver", PLACE, IMAGE),
        "adapter": render(optional / "adapter", PLACE, IMAGE),
        "guards": guards(PLACE, ()),
        "protected-claims": render(optional / "protected-claims", PLACE),
        "fence": [taint_rule("__DRIVER__")],
        "webhooks": configurations(configuration.dialects, Registration(namespace=PLACE)),
        "devices": configurations(configuration.dialects, Registration(namespace=PLACE, devices=True)),
    }
    for way, quota, seen in product((EXTENDER, "apart", "plugin"), ("", "-quota"), ("", "-promises")):
        bridges = bridge(PLACE, IMAGE, SCHEDULER_IMAGE, way)
        if quota:
            bridges += quotas(bridges, PLACE)
            bridges.append(registration.at_quotas(Registration(namespace=PLACE)))
        if seen:
            bridges += promises(bridges, PLACE)
        objects[f"{way}{quota}{seen}"] = bridges
    # What --promises adds comes with the bridge; the agent is only patched.
    agents = deepcopy(objects["node-agent"])
    promises(agents, PLACE)
    objects["node-agent-promises"] = agents
    return objects


def _schema() -> dict[str, Any]:
    """The schema of the values, with that of the configuration in its place."""
    from cli.schemas import text_of

    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    _require_all(schema)
    whole = json.loads(text_of("config"))
    schema["definitions"] |= whole["definitions"]
    values = schema["properties"]
    values["configuration"] = {
        "type": "object",
        "properties": whole["properties"],
        "additionalProperties": False,
    }
    values["image"]["pattern"] = f"^({IMAGES.pattern})?$"
    values["bridge"]["properties"]["schedulerImage"]["pattern"] = f"^({IMAGES.pattern})?$"
    values["namespace"]["pattern"] = f"^({LABEL.pattern})?$"
    return schema


def _require_all(schema: dict[str, Any]) -> None:
    """Require every value: one that is set to null is taken away, and a template would fail on it."""
    members = schema.get("properties", {})
    if members:
        schema["required"] = [name for name in members if name != "global"]
    for one in members.values():
        _require_all(one)
