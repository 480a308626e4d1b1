"""Whose claim's a CDI file is, by its name: a driver's, and the claim's uid. What is in the file is never asked, so it may be as it likes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_UID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
_ENDINGS = (".json", ".yaml")


def claim_uid(name: str, drivers: Collection[str]) -> str:
    """Say for which claim a driver of this node wrote a file; "" if it is no such file. GPUs have uuids, too, so a driver has to be named."""
    uids: list[str] = _UID.findall(name)
    if not name.endswith(_ENDINGS) or len(uids) != 1 or not any(driver in name for driver in drivers):
        return ""
    return uids[0]
