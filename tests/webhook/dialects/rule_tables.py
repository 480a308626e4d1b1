"""Dialects of an administrator with one row, and pods that use them."""

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
ANNOTATION = {"name": "our.org/a", "place": "annotation"}


def rules(*keys: dict, **more) -> dict:
    """A configuration with one dialect, in which `our.org/gpu` requests GPUs."""
    asks = {"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}
    table = {
        "name": "ours",
        "title": "Ours",
        "target": "vgpu",
        **more,
        "keys": [asks, *({"meaning": "m", **key} for key in keys)],
    }
    return {"dialects": [table]}
