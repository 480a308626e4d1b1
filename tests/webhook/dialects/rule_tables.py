"""Configurations with a dialect that an administrator wrote. A dialect is a table of the keys of one system; a row says what a key requests."""

ANNOTATION = {"name": "our.org/a", "place": "annotation"}


def dialect_with(*keys: dict, **table_fields) -> dict:
    """Return a configuration field with one dialect. Its rows are `our.org/gpu`, which requests GPUs, and `keys`."""
    count_row = {"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}
    table = {
        "name": "ours",
        "title": "Ours",
        "target": "vgpu",
        **table_fields,
        "keys": [count_row, *({"meaning": "m", **key} for key in keys)],
    }
    return {"dialects": [table]}
