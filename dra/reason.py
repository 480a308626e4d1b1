"""Why something is not further: the one type of the webhook, `check`, `explain`, `doctor` and the dashboard."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec


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

    @property
    def remedy(self) -> str:
        """The remedies in one text."""
        return "; or ".join(self.remedies)
