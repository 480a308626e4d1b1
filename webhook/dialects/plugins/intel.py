"""Intel GPUs and Gaudi accelerators: whole cards, by the kernel driver that runs them.

A unit of `gpu.intel.com/i915` is a card unless the plugin was started with `shared-dev-num`, so it is believed as `nvidia.com/gpu`
is: if declared, or if most nodes publish cards. Keys follow intel/intel-device-plugins-for-kubernetes: cmd/gpu_plugin; the targets
intel/intel-resource-drivers-for-kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.demand import Answer, Demand, Keyed, Left, Note
from webhook.dialects.table import Action, Dialect, Role, Row
from webhook.dialects.vocabulary import Bare, Vocabulary
from webhook.dialects.words import Meaning, Options

if TYPE_CHECKING:
    from webhook.dialects.words import Words

DIALECT = Dialect(
    name="intel",
    title="Intel GPU and Gaudi",
    target="intelI915",
    apart=True,
    keys=(
        Row(
            name="gpu.intel.com/i915",
            meaning="GPUs on the i915 driver, if the cluster shows that a unit is a whole one",
            role=Role.COUNT,
            common=True,
            target="intelI915",
        ),
        Row(
            name="gpu.intel.com/xe",
            meaning="GPUs on the xe driver, if the cluster shows that a unit is a whole one",
            role=Role.COUNT,
            common=True,
            target="intelXe",
        ),
        Row(name="habana.ai/gaudi", meaning="Gaudi accelerators", role=Role.COUNT, target="gaudi"),
        *(
            Row(
                name=f"gpu.intel.com/{name}",
                meaning="sees all GPUs of the node, for telemetry",
                action=Action.LEFT,
                because="that takes a claim with adminAccess in a namespace labelled for it: write it by hand",
            )
            for name in ("monitoring", "i915_monitoring", "xe_monitoring")
        ),
        *(
            Row(
                name=f"gpu.intel.com/{name}",
                meaning=text,
                action=Action.LEFT,
                because="parts of a card have no counterpart: the driver gives whole ones",
            )
            for name, text in (
                ("millicores", "thousandths of a GPU's compute"),
                ("memory.max", "bytes of a GPU's memory"),
                ("tiles", "tiles of a GPU"),
            )
        ),
    ),
)


def read(words: Words[Options]) -> Answer:
    """Read one container: so many whole cards of each kind."""
    demands = []
    notes = []
    for amount in words.said[0].amounts:
        key, row = amount.key, amount.row
        if row.action is Action.LEFT:
            return Answer(left=Left(key, row.because))
        if not amount.value:
            continue
        demand = Demand(target=row.target, count=amount.value)
        demands.append(Keyed(key, demand))
        plural = "s" if amount.value > 1 else ""
        notes.append(Note(key, Action.TRANSLATED, f"{amount.value} whole device{plural}"))
    return Answer(demands=tuple(demands), notes=tuple(notes))


def read_declared(text: str) -> Meaning | None:
    """Read what an administrator declares a unit to be."""
    return Meaning() if text == "whole" else None


VOCABULARY = Vocabulary(
    table=DIALECT,
    read=read,
    options=Options,
    bare=Bare(
        target="intelI915",
        targets={"gpu.intel.com/i915": "intelI915", "gpu.intel.com/xe": "intelXe"},
        declared=read_declared,
        words="whole",
        pod=lambda _: None,
        node=lambda _: "",
    ),
)
