"""Koordinator: percentages and bytes for the pod as a whole, spread over a number of GPUs that all its containers see.

First what Koordinator's webhook does to each app container (`gpu` becomes core and memory ratio, a missing `gpu.shared`
is filled in), then the sum over the pod, then the table of accepted combinations, then the division by the summed
`gpu.shared`. A pod that has been through that webhook and one that has not come out the same. Rows and arithmetic follow
koordinator-sh/koordinator: apis/extension/device_share.go, pkg/webhook/pod/mutating/device_resource_spec.go,
pkg/scheduler/plugins/deviceshare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.demand import Answer, Refusal
from webhook.dialects.systems.koordinator import gpus, host, networks, notes, pairs
from webhook.dialects.systems.koordinator.draft import Draft, Stop
from webhook.dialects.systems.koordinator.pod_words import KoordinatorOptions, hear
from webhook.dialects.systems.koordinator.table import DIALECT
from webhook.dialects.table import Scheduler
from webhook.dialects.vocabulary import Vocabulary

if TYPE_CHECKING:
    from webhook.dialects.words import Words

# Each adds to what the pod asks for and to what is said of it, or ends the reading.
STEPS = (
    gpus.ask,
    networks.ask,
    pairs.tie,
    host.ask,
    notes.on_partition,
    notes.on_hints,
    notes.on_amounts,
)


def read(words: Words[KoordinatorOptions]) -> Answer:
    """Read a pod as Koordinator would."""
    heard = hear(words)
    if isinstance(heard, Stop):
        return _ended(heard)
    draft = Draft(words=heard)
    for step in STEPS:
        further = step(draft)
        if isinstance(further, Stop):
            return _ended(further)
        draft = further
    return Answer(demands=draft.asked, notes=draft.notes)


def _ended(stop: Stop) -> Answer:
    return Answer(refusals=(stop,)) if isinstance(stop, Refusal) else Answer(left=stop)


VOCABULARY = Vocabulary(
    table=DIALECT,
    read=read,
    options=KoordinatorOptions,
    schedulers={"koord-scheduler": Scheduler(claims=True, prioritized_list=True)},
)
