"""What the doctor finds, and what it would do about it."""

from __future__ import annotations

import msgspec

from cli.doctor.repair import Repair


class Ailment(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    what: str
    object: str
    message: str
    remedy: str
    repair: Repair | None = None
