"""The chart as a folder: the hand-written files of `manifests/chart`, and beside them objects, schema and version, which are made.

What an object is stands in the manifests alone. They are put into the chart as they are, with words in place of what a release decides
everywhere (namespace, images), and the templates read them from there. So the schema of the values names every key of a configuration, too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.contract import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Objects = Sequence[Mapping[str, Any]]

CHART = Path(__file__).resolve().parents[2] / "manifests" / "chart"
# What a template puts the values in the place of. No object has such words otherwise.
PLACE, IMAGE, SCHEDULER_IMAGE = "__NAMESPACE__", "__IMAGE__", "__SCHEDULER_IMAGE__"


def fill(folder: Path, objects: Mapping[str, Objects], configuration: str, patterns: Mapping[str, str]) -> None:
    """Make the chart in a folder that is not there yet, whole or not at all.

    `patterns`: of values, by their pointers, which a schema cannot know by itself.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Broken(
                f"{folder} is there already, and may hold what somebody has written", "name a folder that is not"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".chart-") as scratch:
            made = Path(scratch) / "chart"
            _write(made, objects, configuration, patterns)
            made.rename(folder)
    except OSError as error:
        raise Broken(
            f"no chart can be made in {folder}: {error.strerror}", "name a folder that can be written"
        ) from None


def _write(made: Path, objects: Mapping[str, Objects], configuration: str, patterns: Mapping[str, str]) -> None:
    from cluster import manifests
    from webhook import names

    shutil.copytree(CHART, made)
    with (made / "Chart.yaml").open("a", encoding="utf-8") as chart:
        chart.write(f"version: {names.VERSION}\nappVersion: {names.VERSION}\n")
    schema = json.dumps(_schema(patterns), indent=1)
    _say(made / "values.schema.json", f"{schema}\n")
    folder = made / "objects"
    folder.mkdir()
    _say(folder / "configuration.yaml", configuration)
    for name, some in objects.items():
        text = manifests.dump(map(dict, some))
        _say(folder / f"{name}.yaml", text)


def _say(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def _schema(patterns: Mapping[str, str]) -> dict[str, Any]:
    """The schema of the values, with that of the configuration in its place."""
    from cli.schemas import text_of

    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    _require_all(schema)
    whole = json.loads(text_of("config"))
    schema["definitions"] |= whole["definitions"]
    schema["properties"]["configuration"] = {
        "type": "object",
        "properties": whole["properties"],
        "additionalProperties": False,
    }
    for path, pattern in patterns.items():
        place = schema
        for name in path.split("."):
            place = place["properties"][name]
        place["pattern"] = f"^({pattern})?$"
    return schema


def _require_all(schema: dict[str, Any]) -> None:
    """Who sets a value to null takes it away, and a template would fail on it in words that nobody understands."""
    members = schema.get("properties", {})
    if members:
        schema["required"] = [name for name in members if name != "global"]
    for one in members.values():
        _require_all(one)
