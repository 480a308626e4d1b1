"""The estimated size of a value, compared with the size that Python reports."""

import sys

import msgspec
import pytest

from dra.footprint import footprint
from dra.objects import Node, Pod, ResourceClaim, ResourceClaimTemplate
from dra.quantity import Quantity
from dra.wire import Opaque, convert, decode, encode

MANY_EMPTY_OBJECTS = {"a": [{}] * 3000}
CLAIM = {"metadata": {"name": "c", "namespace": "n", "uid": "u" * 36, "resourceVersion": "1"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}  # fmt: skip


def size_in_memory(value):
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, Quantity):
        return 120
    parts = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, tuple | list):
        parts = list(value)
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, Opaque):
        parts = [value.json]
    return (sys.getsizeof(value) if value != "" else 0) + sum(map(size_in_memory, parts))


HOSTILE = {
    "labels": ({"metadata": {"labels": {f"l{number:x}": "" for number in range(20_000)}}}, Pod),
    "owners": ({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": f"{number}", "uid": f"u{number}"} for number in range(10_000)]}}, ResourceClaimTemplate),
    "finalizers": ({"metadata": {"finalizers": [f"a.b/{number}" for number in range(20_000)]}}, ResourceClaimTemplate),
    "variables": ({"spec": {"containers": [{"env": [{"name": f"E{number}"} for number in range(20_000)]}]}}, Pod),
    "tolerations": ({"spec": {"tolerations": [{}] * 20_000}}, Pod),
    "affinity": ({"spec": {"affinity": MANY_EMPTY_OBJECTS}}, Pod),
    "amounts": ({"status": {"capacity": {f"a.b/{number}": "1" for number in range(20_000)}}}, Node),
    "parameters": ({"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": MANY_EMPTY_OBJECTS}}] * 32}}}, ResourceClaim),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_the_footprint_of_hostile_objects_is_close_to_their_size(name):
    value = convert(*HOSTILE[name])
    assert 0.5 < footprint(value) / size_in_memory(value) < 2.25  # since Python 3.12, a str takes 8 bytes less


def test_the_footprint_of_ordinary_objects_is_close_to_their_size():
    value = convert(CLAIM, ResourceClaim)
    assert 0.5 < footprint(value) / size_in_memory(value) < 2


@pytest.mark.parametrize("value", [{"a": [1.0, 1e300, -1, 2**70, "é", None, {}]}, [], "text", 0, False])
def test_an_opaque_value_equals_its_input(value):
    opaque = Opaque.encode(value)
    assert opaque.value() == value
    assert opaque == Opaque.encode(msgspec.json.decode(msgspec.json.format(msgspec.json.encode(value))))
    assert encode({"x": opaque}) == encode({"x": value})


def test_opaque_values_are_equal_in_any_spelling():
    first, other = (decode(text, ResourceClaim) for text in (
        b'{"spec":{"devices":{"config":[{"opaque":{"parameters":{"a":1,"b":2}}}]}}}',
        b'{"spec":{"devices":{"config":[{"opaque":{"parameters":{ "b" : 2, "a" : 1 }}}]}}}',
    ))  # fmt: skip
    assert first == other


def test_managed_fields_are_not_kept():
    managers = [{"manager": f"m{number}", "fieldsV1": MANY_EMPTY_OBJECTS} for number in range(20)]
    assert footprint(convert({"metadata": {"managedFields": managers}}, ResourceClaimTemplate)) < 500
