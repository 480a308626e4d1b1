"""One case for one row of a dialect's table."""

import re
from typing import NamedTuple

from tests.webhook.pods import pod
from webhook.dialects.table import Dialect, Outcome, Position, Role

_MEMBERS = {Position.ANNOTATION: "annotations", Position.LABEL: "labels"}


class Row(NamedTuple):
    """A pod with the row's key, and the expected outcome of the key; "" if a known key has no effect."""

    pod: dict
    outcome: str
    config: dict = {}
    key: str = ""  # the key on the pod, if the row's name has a `<…>` part


def rows_not_translated(table: Dialect, limits: dict, config: dict | None = None, **spec) -> dict[str, Row]:
    """Return a case for each row with outcome LEFT. A key has this outcome if it is a resource or has role PLACED, OPT_OUT or ASKS.

    Other keys of these rows have no effect. Their pod requests `limits`.
    """
    rows = {}
    for row in table.keys:
        if row.outcome is not Outcome.LEFT:
            continue
        key = re.sub("<[A-Za-z]+>", "x1", row.name)
        value = row.when or "x"
        manifest = pod({key: 1}) if row.place is Position.RESOURCE else pod(limits, **spec)
        is_left = row.place is Position.RESOURCE or row.role in (Role.PLACED, Role.OPT_OUT, Role.REQUESTS_DEVICES)
        if row.place in _MEMBERS:
            manifest["metadata"][_MEMBERS[row.place]] = {key: value}
        elif row.place is Position.NODE_SELECTOR:
            manifest["spec"]["nodeSelector"] = {key: value}
        elif row.place is Position.ENV:
            manifest["spec"]["containers"][0]["env"] = [{"name": key, "value": value}]
        rows[row.name] = Row(manifest, "left" if is_left else "", config or {}, key)
    return rows
