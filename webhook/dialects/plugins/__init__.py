"""Dialects of device plugins, whose resource names the kubelet counts."""
