"""The kubelet's side of device plugins, so that they are a driver: who registers, what they have, what they answer."""

from __future__ import annotations

from node.service.adapting.adapter import Adapter

__all__ = ["Adapter"]
