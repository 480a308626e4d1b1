"""One case for one row of a dialect's table."""

from typing import NamedTuple


class Row(NamedTuple):
    """A pod that says the row's key, and what becomes of the key: an action, or "" where it is known and says nothing."""

    pod: dict
    becomes: str
    config: dict = {}
    key: str = ""  # for rows with a `<…>` part: the key as it stands on the pod
