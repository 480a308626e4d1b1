"""What the rules of doctor examine, and what several of them need of it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from analysis.doctor.components import Parts
from analysis.loading import Reading
from cluster.objects import Event
from dra.raw import moment
from webhook.state import BridgeSettings, Configuration, Inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dra.objects import DeviceRequest, DeviceToleration
    from dra.stock import Stock
    from webhook.dialects import Served


FAILED_CREATE = "FailedCreate"
FAILED_CLAIM = "FailedResourceClaimCreation"
FAILED_PREPARE = "FailedPrepareDynamicResources"
FAILED_TEMPLATE = "FailedTemplateCreation"  # of drawbridge's own controller
FAILED_OF_PODS = (FAILED_CLAIM, FAILED_PREPARE, FAILED_TEMPLATE)
NAMED = 5  # objects that a message names
QUOTED = 400  # characters of a message of others
_FRESH = timedelta(minutes=20)  # controllers try again after 17 minutes at the latest
_AGAIN = "(combined from similar events): "


class DoctorInput(msgspec.Struct, frozen=True, kw_only=True):
    """A reading, and what only doctor reads or works out besides."""

    reading: Reading
    now: datetime  # by the server's clock, or when the dump was made
    parts: Parts | None = None  # of the installation, if there is one
    unasked: str = ""  # why the API server does not ask the webhook
    missing: dict[str, str] = {}  # inputs of rules (kinds, and others) that were not read, and why

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force; None if nothing that was read configures drawbridge."""
        in_force = self.reading.in_force
        return None if in_force.is_default else in_force.configuration

    @property
    def bridge(self) -> BridgeSettings | None:
        """The bridge as configured; None if that is not known."""
        return self.configuration.file.bridge if self.configuration is not None else None

    @property
    def fenced(self) -> tuple[str, ...]:
        """The drivers whose devices the configuration wants tainted."""
        return self.bridge.drivers if self.bridge is not None and self.bridge.fence else ()


def latest(observed: DoctorInput, reason: str) -> dict[str, str]:
    """What the last event of a reason says, by what it is about; not of a pod that had the same name before."""
    messages: dict[str, str] = {}
    living = {pod.metadata.key: pod.metadata.uid for pod in observed.reading.pods.values()}
    for event in sorted(observed.reading.typed.of_type(Event), key=lambda event: event.last_timestamp):
        last = moment(event.last_timestamp)
        if event.reason == reason and (last is None or observed.now - last <= _FRESH):
            about = event.involved_object
            uid = living.get(f"{about.namespace}/{about.name}") if about.kind == "Pod" else ""
            if uid and about.uid and uid != about.uid:
                continue
            messages[f"{about.kind}/{about.namespace}/{about.name}"] = event.message.removeprefix(_AGAIN)
    return messages


def classes_of(stock: Stock) -> Mapping[str, Served]:
    return Inventory.gather(stock.classes.values(), stock.slices.values(), ()).classes


def drivers_of_classes(stock: Stock) -> dict[str, str]:
    return {name: served.driver for name, served in classes_of(stock).items() if served.driver}


def kept_by(
    request: DeviceRequest, drivers: Mapping[str, str], taint_of: Callable[[str, tuple[DeviceToleration, ...]], str]
) -> list[tuple[str, str]]:
    """Name driver and taint that keep a request from every device; nothing where one alternative has a device."""
    taints: list[tuple[str, str]] = []
    for alternative in request.alternatives.values():
        driver = drivers.get(alternative.device_class_name, "")
        taint = taint_of(driver, alternative.tolerations) if driver else ""
        if not taint:
            return []
        taints.append((driver, taint))
    return taints
