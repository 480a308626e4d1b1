"""Names that other programs choose: the claim of a CDI file by its name (its content is never read), and how a name may be repeated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_UID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
_ENDINGS = (".json", ".yaml")
LONGEST = 300


def plain(text: str, most: int = LONGEST) -> str:
    """Repeat a foreign text in one line of bounded length that does nothing to a terminal."""
    short = text[:most]
    return short if short.isprintable() else short.encode("unicode_escape").decode()


def claim_uid(name: str, drivers: Collection[str]) -> str:
    """Say for which claim a driver of this node wrote a file; "" if it is no such file. GPUs have uuids, too, so a driver has to be named."""
    uids: list[str] = _UID.findall(name)
    if not name.endswith(_ENDINGS) or len(uids) != 1 or not any(driver in name for driver in drivers):
        return ""
    return uids[0]
