"""The adapter: acts as the kubelet to device plugins and serves their devices as a DRA driver."""

from node.service.adapting.adapter import Adapter

__all__ = ["Adapter"]
