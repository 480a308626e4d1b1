"""Decoding and the stock: a slice of 128 devices, and one change in a fleet of 5,000 nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from bench.row import Row, median_seconds, side_by_side
from dra.objects.device import ResourceSlice
from dra.stock.stock import Stock
from dra.wire import convert, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = 5_000


def rows() -> Iterator[Row]:
    """Measure decoding beside the official client's models, then changes of a stock."""
    yield decoding_row()
    yield from change_rows()


def decoding_row() -> Row:
    """Decode one full slice."""
    from kubernetes.client import ApiClient

    raw = json.dumps(slice_of("node-0", devices=128)).encode()
    official = ApiClient()

    class Response:
        data = raw.decode()

    ours, theirs = side_by_side(
        lambda: decode(raw, ResourceSlice),
        lambda: official.deserialize(Response.data, "V1ResourceSlice", "application/json"),
    )
    return Row(
        what=f"decode a slice of 128 devices ({len(raw) // 1000} kB)",
        unit="ms",
        ours=ours * 1e3,
        peer="official client",
        theirs=theirs * 1e3,
        target="well under 1 ms",
    )


def change_rows() -> Iterator[Row]:
    """Change one slice of a large stock, and compare the time with that of building the stock anew."""
    slices = [convert(slice_of(f"node-{number}", devices=8), ResourceSlice) for number in range(NODES)]
    old_stock = Stock.of(slices=slices)
    old_slice = slices[NODES // 2]
    pool = msgspec.structs.replace(old_slice.spec.pool, generation=2)
    new_slice = msgspec.structs.replace(old_slice, spec=msgspec.structs.replace(old_slice.spec, pool=pool))
    rebuilt_seconds = median_seconds(lambda: Stock.of(slices=slices), runs=3)
    yield Row(
        what=f"one slice changed in a stock of {NODES:,} nodes x 8 devices",
        unit="ms",
        ours=median_seconds(lambda: old_stock.with_object(new_slice), runs=21) * 1e3,
        peer="building it anew",
        theirs=rebuilt_seconds * 1e3,
        target="< 1 ms",
    )


def slice_of(node: str, *, devices: int) -> dict[str, object]:
    """Make a slice like those of the NVIDIA driver; its devices do not exist."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu.nvidia.com", "uid": f"uid-{node}", "resourceVersion": "1"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device(index) for index in range(devices)],
        },
    }


def device(index: int) -> dict[str, object]:
    """Make one GPU with the attributes a real one publishes."""
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-00000000-0000-0000-0000-{index:012d}"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.65.6"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{index:02x}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2:02x}"},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }
