"""Devices with the same token differ only in their names and attributes, and in fields that the allocator does not compare."""

from weakref import WeakSet

from msgspec import inspect

from dra.objects import Device
from dra.stock import body
from dra.stock.equivalence import LEFT_OUT, Interner
from dra.wire import convert


def test_only_equal_contents_have_equal_tokens():
    tokens = Interner()
    first = tokens.token(("a", (1, 2)), object)
    assert tokens.token(("a", (1, 2)), object) is first
    assert tokens.token(("a", (1, 3)), object) is not first


def test_an_interner_drops_tokens_at_its_limit():
    class Token:
        pass

    def make():
        token = Token()
        live_tokens.add(token)
        return token

    live_tokens = WeakSet()
    tokens = Interner(100_000)
    for number in range(10_000):
        token = tokens.token((f"device-{number}" * 5, number), make)
    kept_tokens = len(live_tokens)
    assert 250 < kept_tokens < 1_500
    assert tokens.token((f"device-{number}" * 5, number), make) is token
    tokens.token(("x" * 200_000,), make)
    assert len(live_tokens) == kept_tokens


def test_devices_with_different_bodies_are_distinguished():
    def device(name, memory):
        return convert({"name": name, "capacity": {"memory": {"value": memory}}}, Device)

    assert body(device("a", "80Gi")) is body(device("b", "80Gi"))
    assert body(device("a", "80Gi")) is not body(device("a", "40Gi"))


def full(type_, name=""):
    """Return a JSON value of a type in which every field is set."""
    if isinstance(type_, inspect.StructType):
        return {field.encode_name: full(field.type, field.encode_name) for field in type_.fields}
    if isinstance(type_, inspect.UnionType):
        return full(type_.types[0], name)
    if isinstance(type_, inspect.DictType):
        return {"key": full(type_.value_type)}
    if isinstance(type_, inspect.VarTupleType):
        return [full(type_.item_type)]
    return {inspect.BoolType: True, inspect.IntType: 1, inspect.CustomType: "1Gi"}.get(type(type_), name)


def changed(value, path=()):
    """Yield each place in a value, and a copy of the value with other content in this place."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from ((place, {**value, name: other}) for place, other in changed(item, (*path, name)))
    elif isinstance(value, list):
        yield from ((place, [other]) for place, other in changed(value[0], path))
    elif isinstance(value, int):
        yield path, not value if isinstance(value, bool) else value + 1
    else:
        yield path, "3Gi" if value == "1Gi" else f"{value}x"


def test_every_field_distinguishes_devices_except_the_excluded_ones():
    device = full(inspect.type_info(Device))
    token = body(convert(device, Device))
    same = {path for path, other in changed(device) if body(convert(other, Device)) is token}
    scheduling = {"nodeAllocatableResources", "bindsToNode", "bindingConditions", "bindingFailureConditions"}
    assert {path for path in same if len(path) > 1 and path[0] not in {"attributes", *scheduling}} == {
        ("taints", "timeAdded")
    }
    assert {path[0] for path in same} == {"name", "attributes", "taints", *scheduling}


def test_the_fields_left_out_of_device_equivalence_exist():
    for kind, fields in LEFT_OUT.items():
        assert fields <= set(kind.__struct_fields__), kind
