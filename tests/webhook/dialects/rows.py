"""One case for one row of a dialect's table."""

import re
from typing import NamedTuple

from tests.webhook.pods import pod
from webhook.dialects.table import Dialect, Outcome, Position, Role

_MEMBERS = {Position.ANNOTATION: "annotations", Position.LABEL: "labels"}


class Row(NamedTuple):
    """A pod with the row's key, and the outcome of the key, or "" if a known key has no effect."""

    pod: dict
    becomes: str
    config: dict = {}
    key: str = ""  # the key on the pod, if the row's name has a `<…>` part


def rows_left(table: Dialect, ask: dict, config: dict | None = None, **spec) -> dict[str, Row]:
    """Return a case for each row that is left. A resource, or a key of role PLACED, OPT_OUT or ASKS, is left; other keys have no effect."""
    rows = {}
    for row in table.keys:
        if row.outcome is not Outcome.LEFT:
            continue
        key = re.sub("<[A-Za-z]+>", "x1", row.name)
        value = row.when or "x"
        made = pod({key: 1}) if row.place is Position.RESOURCE else pod(ask, **spec)
        keeps = row.place is Position.RESOURCE or row.role in (Role.PLACED, Role.OPT_OUT, Role.ASKS)
        if row.place in _MEMBERS:
            made["metadata"][_MEMBERS[row.place]] = {key: value}
        elif row.place is Position.NODE_SELECTOR:
            made["spec"]["nodeSelector"] = {key: value}
        elif row.place is Position.ENV:
            made["spec"]["containers"][0]["env"] = [{"name": key, "value": value}]
        rows[row.name] = Row(made, "left" if keeps else "", config or {}, key)
    return rows
