"""The port for /metrics, /livez and /readyz, and its metrics."""

from serving.metrics.device_series import POD_DEVICE, DeviceSeries, SeriesFamily
from serving.metrics.port import MetricsPort

__all__ = [
    "POD_DEVICE",
    "DeviceSeries",
    "MetricsPort",
    "SeriesFamily",
]
