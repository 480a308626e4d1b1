"""The port for /metrics, /livez and /readyz, and its metrics."""

from runtime.metrics.device_series import POD_DEVICE, DeviceSeries, SeriesFamily
from runtime.metrics.port import MetricsPort

__all__ = ["POD_DEVICE", "DeviceSeries", "MetricsPort", "SeriesFamily"]
