"""Series about which pod has which device, for all processes that show them: what they are known by, and how many there may be.

Their labels are names that others chose, so their number is bounded: beyond it series are left out, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dra.quantity import NANO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from dra.quantity import Quantity

# Queries join by these.
POD_DEVICE = ("namespace", "pod", "claim", "driver", "pool", "device", "share", "node", "uuid")


class SeriesFamily(NamedTuple):
    """Series of one name."""

    name: str
    text: str
    labels: tuple[str, ...] = ()


class DeviceSeries(Collector):
    """Devices, what is had of their capacities, and how many there was no series left for; read when metrics are read."""

    def __init__(
        self,
        devices: SeriesFamily,
        amounts: SeriesFamily,
        left_out: SeriesFamily,
        most: int,
        rows: Callable[[], Iterable[tuple[Sequence[str], Mapping[str, Quantity]]]],
    ) -> None:
        """`rows` are the labels of each device that a pod has, and what it has of it; `most` series each are shown."""
        self._families = devices, amounts, left_out
        self._most = most
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. A device is shown with all that a pod has of it; or not at all, if there is no room."""
        devices, amounts, omitted = (GaugeMetricFamily(one.name, one.text, labels=one.labels) for one in self._families)
        left_out = 0
        for labels, had in self._rows():
            if max(len(devices.samples), len(amounts.samples) + len(had)) >= self._most:
                left_out += 1
                continue
            devices.add_metric(labels, 1)
            for capacity in sorted(had):
                amounts.add_metric([*labels, capacity], had[capacity].nano / NANO)
        omitted.add_metric((), left_out)
        yield from (devices, amounts, omitted)
