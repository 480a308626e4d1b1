"""Makes the drivers' page and the manifests in manifests/examples from the folders of the dialects (`webhook/dialects/<name>`).

A folder has, besides the Python code:

- `published.yaml`, what the system's documentation or sources contain: names and kinds, no texts of theirs.
  - `keys`: the keys that pods may have. A line has a place, the outcome, and all keys that have both. The lists were not made from the dialects'
    tables; tests compare the two. A key of several systems is in the list of each.
  - `drivers`, by name: `readIn`, where these facts come from; `classes`, the DeviceClasses of the driver's chart with the extendedResourceName of each,
    with a `?` if not every chart sets it (`classesNote` and `servedNote` continue the page's lines about them); `page`, further lines of the page;
    `devices`, the kinds of device. An attribute is a string unless a type follows its name; `name=value` always has the value, `name?` is not on every
    device, and a capacity with `+` has a request policy. `shared` kinds are allocated more than once.
- `<driver>.yaml`: an example of each driver's classes and slices, and of Nodes that the example of no other driver has.
- other YAML files: example workloads, whose line `# expect:` states the outcome.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import webhook.dialects
from webhook.dialects import VOCABULARIES

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARENT = Path(webhook.dialects.__file__).parent
FOLDERS = {name: _PARENT / name for name in sorted(vocabulary.table.name for vocabulary in VOCABULARIES)}
PUBLISHED: Mapping[str, Any] = {
    name: yaml.safe_load((folder / "published.yaml").read_text(encoding="utf-8")) for name, folder in FOLDERS.items()
}
DRIVERS: Mapping[str, Any] = {
    driver: facts for published in PUBLISHED.values() for driver, facts in published.get("drivers", {}).items()
}
_NODES = "# The nodes that these drivers run on, with the labels that pods select them by. Device plugins keep giving what no driver does.\n"


def driver_list() -> str:
    """List the drivers with their classes, and with what a reader should know about each."""
    lines: list[str] = []
    for driver, facts in sorted(DRIVERS.items()):
        classes = ", ".join(f"`{name}`" for name in facts["classes"])
        names = ", ".join(f"`{name.removesuffix('?')}`" for name in facts["classes"].values() if name)
        served = names + facts.get("servedNote", "")
        lines += [f"- `{driver}`", f"  - read in: {facts['readIn']}"]
        lines += [f"  - classes: {classes}{facts.get('classesNote', '')}"]
        lines += [f"  - served by core: {served}"] * bool(served)
        lines += [f"  - {line}" for line in facts["page"]]
    return "\n".join(lines)


def examples() -> Mapping[str, str]:
    """Return the text of each example, by its path below manifests/examples."""
    texts: dict[str, str] = {}
    nodes: list[str] = []
    for name, folder in FOLDERS.items():
        for path in sorted(folder.glob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            if path.stem in DRIVERS:
                documents = text.split("---\n")
                nodes += filter(_is_node, documents)
                texts[f"drivers/{path.name}"] = "---\n".join(text for text in documents if not _is_node(text))
            elif path.stem != "published":
                texts[f"{name}/{path.name}"] = text
    texts["drivers/nodes.yaml"] = _NODES + "---\n".join(sorted(nodes))
    return texts


def _is_node(document: str) -> bool:
    return "\nkind: Node\n" in document
