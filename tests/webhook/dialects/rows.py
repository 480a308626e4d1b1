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
    key: str = ""  # for rows with a `<…>` part: the key as it stands on the pod


def rows_left(table: Dialect, ask: dict, config: dict | None = None, **spec) -> dict[str, Row]:
    """Cases for all rows that are left: a key on a container stays, and so does the pod for an output or a wish to be left alone."""
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
