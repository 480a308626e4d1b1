"""Why something is not further: the one type of the allocator, the webhook, the commands and the dashboard."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Actor(StrEnum):
    """The component, or the user, that acts next."""

    WEBHOOK = "webhook"
    TEMPLATES = "template controller"
    CLAIMS = "claim controller"
    SCHEDULER = "scheduler"
    BRIDGE = "bridge"
    DRIVER = "driver"
    KUBELET = "kubelet"
    USER = "user"
    NONE = ""


class Harm(IntEnum):
    """What a remedy costs others, the least first."""

    NONE = 0  # it mends the cause, or frees devices that no pod uses
    IDLE_NODE = 1  # it opens a cordoned node whose devices are free
    IDLE_POD = 2  # it ends a pod that does not run yet
    LIVE_POD = 3  # it ends a pod that runs


def by_harm(remedies: Iterable[tuple[Harm, str]]) -> tuple[str, ...]:
    """Return the remedies, the least harmful first."""
    return tuple([remedy for _, remedy in sorted(remedies, key=itemgetter(0))])


class Reason(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a pod, a claim or a key is not further, in one sentence, and the component or user that acts next."""

    text: str
    actor: Actor = Actor.NONE
    # The code of the finding; "" if the reason alone is no fault.
    code: str = ""
    # The objects (Kind/namespace/name), keys or attributes that cause it.
    causes: tuple[str, ...] = ()
    # Whether waiting cannot help.
    never: bool = False
    # What helps, the least harmful first.
    remedies: tuple[str, ...] = ()
    # The nodes that the pod cannot use because of it.
    nodes: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """The remedies in one text."""
        return "; or ".join(self.remedies)

    def __str__(self) -> str:
        remedy = f" ({self.remedy})" if self.remedies else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{self.text}{remedy}{code}"
