"""The input of doctor's rules, and functions that several rules need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from analysis.doctor.components import Parts
from analysis.loading import Reading
from webhook.state import BridgeSettings, Configuration, Inventory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from dra.stock import Stock
    from webhook.dialects import Served


MAX_NAMED = 5  # objects that a message names


class DoctorInput(msgspec.Struct, frozen=True, kw_only=True):
    """A reading, and further inputs that only doctor needs."""

    reading: Reading
    parts: Parts | None = None  # of the installation, if there is one
    why_not_called: str = ""  # why the API server does not call the webhook
    missing: dict[str, str] = {}  # inputs of rules (kinds, and others) that were not read, and why
    warnings: tuple[str, ...] = ()

    @property
    def now(self) -> datetime:
        """The time by the server's clock, or when the dump was made."""
        return self.reading.time

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force; None if nothing that was read configures drawbridge."""
        in_force = self.reading.in_force
        return None if in_force.is_default else in_force.configuration

    @property
    def bridge(self) -> BridgeSettings | None:
        """The configured bridge; None if there is none, or it is not known."""
        return self.configuration.file.bridge if self.configuration is not None else None

    @property
    def fenced(self) -> tuple[str, ...]:
        """The drivers for whose devices the configuration requires a fence."""
        return self.bridge.drivers if self.bridge is not None and self.bridge.fence else ()


def classes_of(stock: Stock) -> Mapping[str, Served]:
    return Inventory.gather(stock.classes.values(), stock.slices.values(), ()).classes


def drivers_of_classes(stock: Stock) -> dict[str, str]:
    return {name: served.driver for name, served in classes_of(stock).items() if served.driver}
