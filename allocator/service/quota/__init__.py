"""Quota reviews of new pods and claims, and the status of DeviceQuotas and DeviceCompatibilities."""
