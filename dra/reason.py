"""Why something is not further: the one type of the allocator, the webhook, the commands and the dashboard."""

from __future__ import annotations

from enum import StrEnum

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
    ADMINISTRATOR = "administrator"
    NONE = ""


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
    # What helps.
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
