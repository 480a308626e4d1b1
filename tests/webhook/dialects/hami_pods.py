"""Pods with HAMi's keys and annotations."""

from tests.webhook.pods import pod


def hami_pod(annotations=None, **limits):
    """Return a pod with HAMi's annotations and keys: `hami_pod({"use_gputype": "A100"}, gpu=1)`. An underscore becomes a hyphen."""
    keys = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    return pod(keys, annotations={f"nvidia.com/{k.replace('_', '-')}": v for k, v in (annotations or {}).items()})
