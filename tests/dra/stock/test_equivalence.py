"""Devices with the same token differ only in their names and attributes, and in fields that the allocator does not compare."""

from weakref import WeakSet

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


FULL_DEVICE = {
    "name": "a",
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"}},
        }
    },
    "nodeName": "n",
    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]},
    "allNodes": True,
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["g"]}],
    "allowMultipleAllocations": True,
    "bindsToNode": True,
    "bindingConditions": ["b"],
    "bindingFailureConditions": ["f"],
    "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}},
}  # fmt: skip


def changed(value, path=()):
    """Yield each place in a value, and a copy of the value with other content in this place."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from (
                (path_, {**value, name: changed_value}) for path_, changed_value in changed(item, (*path, name))
            )
    elif isinstance(value, list):
        yield from ((path_, [changed_value]) for path_, changed_value in changed(value[0], path))
    else:
        changed_value = {
            "nodeName": "m",
            "operator": "NotIn",
            "effect": "NoExecute",
            "timeAdded": "2026-01-02T00:00:00Z",
        }
        if isinstance(value, int):
            yield path, not value if isinstance(value, bool) else value + 1
        else:
            yield path, changed_value.get(path[-1], "3Gi" if value[0].isdigit() else f"{value}x")


def test_every_field_distinguishes_devices_except_the_excluded_ones():
    assert set(FULL_DEVICE) == set(Device.__struct_encode_fields__) - {"attributes"}, "add the new field to FULL_DEVICE"
    token = body(convert(FULL_DEVICE, Device))
    is_distinguished = {
        path: body(convert(changed_value, Device)) is not token for path, changed_value in changed(FULL_DEVICE)
    }
    assert len(is_distinguished) == 24
    binding = {("bindsToNode",), ("bindingConditions",), ("bindingFailureConditions",)}
    counted_by_the_scheduler = {("nodeAllocatableResources", "cpu", "overhead", "perPod")}
    not_distinguished = {path for path, differs in is_distinguished.items() if not differs}
    assert not_distinguished == {("name",), ("taints", "timeAdded")} | binding | counted_by_the_scheduler


def test_the_fields_left_out_of_device_equivalence_exist():
    for kind, fields in LEFT_OUT.items():
        assert fields <= set(kind.__struct_fields__), kind
