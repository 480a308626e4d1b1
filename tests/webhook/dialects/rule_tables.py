"""Configurations with a dialect of an administrator."""

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
ANNOTATION = {"name": "our.org/a", "place": "annotation"}


def rules(*keys: dict, **table_fields) -> dict:
    """Return a configuration with one dialect, in which `our.org/gpu` requests GPUs and `keys` are the other rows."""
    count_row = {"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}
    table = {
        "name": "ours",
        "title": "Ours",
        "target": "vgpu",
        **table_fields,
        "keys": [count_row, *({"meaning": "m", **key} for key in keys)],
    }
    return {"dialects": [table]}
