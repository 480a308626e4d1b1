"""What we write on a pod, so that it can be read, replayed, taken back, and never done twice.

`original` holds the requests as they were, by container, and the scheduler's name; `decision` what was done and by which
version; `templates` the sealed specs (`webhook.claims.template`); `devices` counts and models for tools that looked at the old
keys. A pod author may write these too. Nothing is believed that gives anything: a record is only ever used to take keys
away from a container that has a claim of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.wire import Json
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Mapping


class Original(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the pod asked for before we came: each container's removed keys, and the scheduler if we changed it."""

    containers: dict[str, dict[str, Json]] = {}
    scheduler_name: str | None = None
    # What we set instead, so that a replay needs no configuration.
    scheduled_by: str | None = None

    @property
    def empty(self) -> bool:
        return not self.containers and self.scheduled_by is None

    def joined(self, later: Original) -> Original:
        """Add what a later round recorded; what was recorded first stands."""
        containers = {**later.containers, **self.containers}
        for name in self.containers.keys() & later.containers.keys():
            containers[name] = {**later.containers[name], **self.containers[name]}
        return Original(
            containers=containers,
            scheduler_name=self.scheduler_name if self.scheduled_by else later.scheduler_name,
            scheduled_by=later.scheduled_by or self.scheduled_by,
        )


_read = msgspec.json.Decoder(Original).decode
encode = msgspec.json.Encoder(order="sorted").encode


def original(annotations: Mapping[str, Json]) -> Original:
    """Read the record off a pod; a damaged one counts as none."""
    text = annotations.get(names.ORIGINAL)
    if not isinstance(text, str):
        return Original()
    try:
        return _read(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Original()


def text(value: object) -> str:
    """Write an annotation's value: one line of JSON, the same for the same value."""
    return encode(value).decode()


def value(text_: Json) -> Json:
    """Read an annotation that `text` wrote; None for anything else."""
    if not isinstance(text_, str):
        return None
    try:
        return msgspec.json.decode(text_)
    except msgspec.DecodeError:
        return None
