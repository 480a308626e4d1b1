"""The metrics about each pod's devices, with a bounded number of series.

The bound is needed because users choose the names in the labels. Devices beyond it get no series, and another metric counts them.
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

# Queries join by these labels.
POD_DEVICE = ("namespace", "pod", "claim", "driver", "pool", "device", "share", "node", "uuid")


class SeriesFamily(NamedTuple):
    name: str
    text: str
    labels: tuple[str, ...] = ()


class DeviceSeries(Collector):
    """Collects pods' devices, their shares of capacities, and the number of devices left out, when metrics are read."""

    def __init__(
        self,
        devices: SeriesFamily,
        amounts: SeriesFamily,
        left_out: SeriesFamily,
        most: int,
        rows: Callable[[], Iterable[tuple[Sequence[str], Mapping[str, Quantity]]]],
    ) -> None:
        """`rows` yields the labels of each pod's devices and the shares of their capacities; each metric has at most `most` series."""
        self._families = devices, amounts, left_out
        self._most = most
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. A device is included with all its capacities or, at the limit, not at all."""
        devices, amounts, left_out_series = (
            GaugeMetricFamily(family.name, family.text, labels=family.labels) for family in self._families
        )
        left_out = 0
        for labels, shares in self._rows():
            if max(len(devices.samples), len(amounts.samples) + len(shares)) >= self._most:
                left_out += 1
                continue
            devices.add_metric(labels, 1)
            for capacity in sorted(shares):
                amounts.add_metric([*labels, capacity], shares[capacity].nano / NANO)
        left_out_series.add_metric((), left_out)
        yield from (devices, amounts, left_out_series)
