"""Cases for the rows of a dialect. A dialect is the table of one system's keys, with a row for each key."""

import re
from typing import NamedTuple

from tests.webhook.pods import pod
from webhook.dialects.table import Dialect, Outcome, Position, Role

_METADATA_FIELDS = {Position.ANNOTATION: "annotations", Position.LABEL: "labels"}


class Row(NamedTuple):
    """A pod with the row's key, the fields of the configuration, and the expected outcome; "" if the key is known but has no effect."""

    pod: dict
    outcome: str
    config: dict = {}
    key: str = ""  # the key with this outcome, if it is not the row's name: for `<…>` in the name, or if another key is decided


def rows_not_translated(table: Dialect, limits: dict, config: dict | None = None, **spec) -> dict[str, Row]:
    """Return a case for each row whose outcome in the table is LEFT.

    A verdict reports this outcome only for resources and for roles PLACED, OPT_OUT and REQUESTS_DEVICES; the other keys have no effect.
    A pod with a key that is not a resource requests `limits`.
    """
    rows = {}
    for row in table.keys:
        if row.outcome is not Outcome.LEFT:
            continue
        key = re.sub("<[A-Za-z]+>", "x1", row.name)
        value = row.when or "x"
        manifest = pod({key: 1}) if row.place is Position.RESOURCE else pod(limits, **spec)
        is_left = row.place is Position.RESOURCE or row.role in (Role.PLACED, Role.OPT_OUT, Role.REQUESTS_DEVICES)
        if row.place in _METADATA_FIELDS:
            manifest["metadata"][_METADATA_FIELDS[row.place]] = {key: value}
        elif row.place is Position.NODE_SELECTOR:
            manifest["spec"]["nodeSelector"] = {key: value}
        elif row.place is Position.ENV:
            manifest["spec"]["containers"][0]["env"] = [{"name": key, "value": value}]
        rows[row.name] = Row(manifest, "left" if is_left else "", config or {}, key)
    return rows


def default_rows(table: Dialect) -> dict[str, Row]:
    """Return a case for each row whose pod follows from the row: resources, of which the pod requests one, and rows that are not translated."""
    names = [row.name for row in table.keys if row.place is Position.RESOURCE and row.outcome is not Outcome.LEFT]
    requested = [name for name in names if "<" not in name]
    outcomes = {row.name: str(row.outcome) for row in table.keys}
    cases = {name: Row(pod({name: 1}), outcomes[name]) for name in requested}
    return rows_not_translated(table, dict.fromkeys(requested[:1], 1)) | cases
