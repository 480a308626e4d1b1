"""The kubelet's end of device plugins, so that they are a driver: their registration, devices and answers."""

from __future__ import annotations

from node.service.adapting.adapter import Adapter

__all__ = ["Adapter"]
