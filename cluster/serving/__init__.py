"""The way in: connections are let in, requests are read, answers are written. No step without an end.

It reads no request's meaning: a `Handler` answers. The gate and the allocator's service are such handlers.
"""

from __future__ import annotations

from cluster.serving.accounts import Account, Accounts, Crowded
from cluster.serving.callers import Callers, Credentials
from cluster.serving.connection import ConnectionPhase, Limits
from cluster.serving.device_series import POD_DEVICE, DeviceSeries
from cluster.serving.door import Address, Door
from cluster.serving.messages import Head, Reply, text
from cluster.serving.metrics_port import MetricsPort
from cluster.serving.readiness import readiness
from cluster.serving.unix import listens

__all__ = [
    "POD_DEVICE",
    "Account",
    "Accounts",
    "Address",
    "Callers",
    "ConnectionPhase",
    "Credentials",
    "Crowded",
    "DeviceSeries",
    "Door",
    "Head",
    "Limits",
    "MetricsPort",
    "Reply",
    "listens",
    "readiness",
    "text",
]
