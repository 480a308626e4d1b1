from dra.objects import Device
from dra.stock import body
from dra.stock.equivalence import Interner
from dra.wire import convert


def test_equal_contents_have_one_token_and_others_another():
    tokens = Interner()
    first = tokens.token(("a", (1, 2)), object)
    assert tokens.token(("a", (1, 2)), object) is first
    assert tokens.token(("a", (1, 3)), object) is not first


def test_an_interner_forgets_rather_than_grow():
    tokens = Interner(100_000)
    for number in range(10_000):
        tokens.token((f"device-{number}" * 5, number), object)
    assert len(tokens) < 1_500
    tokens.token(("x" * 200_000,), object)
    assert len(tokens) < 1_500


def test_devices_with_one_body_are_told_from_those_with_another():
    def device(name, memory):
        return convert({"name": name, "capacity": {"memory": {"value": memory}}}, Device)

    assert body(device("a", "80Gi")) is body(device("b", "80Gi"))
    assert body(device("a", "80Gi")) is not body(device("a", "40Gi"))
