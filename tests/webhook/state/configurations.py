"""Configurations with some fields, and the mistakes found in them."""

from webhook.state.configuration import read_configuration

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}


def mistakes(**fields) -> dict[str, str]:
    """Return the messages about an invalid configuration with these fields, by JSON pointer. Each of them must have a remedy."""
    configuration, findings = read_configuration({**HEAD, **fields})
    assert configuration is None
    assert all(finding.remedy for finding in findings)
    return {finding.path: finding.message for finding in findings}


PAIR = {"primary": "nvidia.com/gpu", "secondary": "vpc.amazonaws.com/efa"}
