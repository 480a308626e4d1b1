"""The capacity that a request consumes, rounded by the request policy (KEP-5075)."""

import pytest

from dra.errors import CapacityError
from dra.objects.device import DeviceCapacity
from dra.quantity import Quantity
from dra.stock.capacity import charge, charges
from dra.wire import convert
from tests.loops import every

RANGE_POLICY = {"default": "4", "validRange": {"min": "4", "max": "12", "step": "3"}}
VALUES_POLICY = {"default": "2", "validValues": ["2", "4", "8"]}


def capacity(value, policy=None):
    return convert({"value": value, **({"requestPolicy": policy} if policy else {})}, DeviceCapacity)


def charged(request, value, policy=None):
    """Return the amount that a request consumes of a capacity of this value; None if the device cannot serve it."""
    charges_ = charges({"c": Quantity.parse(request)} if request else {}, {"c": capacity(value, policy)})
    return None if charges_ is None else str(charges_["c"])


@every(
    ("request_", "policy", "expected"),
    [
        (None, None, "16"),
        (None, {"default": "3"}, "3"),
        ("5", None, "5"),
        ("5", {"default": "3"}, "5"),
        *[(amount, RANGE_POLICY, "4") for amount in ("0", "1", "4", "-7")],
        ("5", RANGE_POLICY, "7"),
        ("7", RANGE_POLICY, "7"),
        ("10", RANGE_POLICY, "10"),
        *[(amount, RANGE_POLICY, None) for amount in ("11", "12", "13")],
        ("0", VALUES_POLICY, "2"),
        ("3", VALUES_POLICY, "4"),
        ("8", VALUES_POLICY, "8"),
        ("9", VALUES_POLICY, None),
        ("250m", {"default": "100m", "validRange": {"min": "100m", "step": "100m"}}, "300m"),
        ("1500m", {"default": "1", "validRange": {"min": "1", "step": "1"}}, "2"),
        ("5", {"default": "1", "validRange": {"min": "1", "max": "6"}}, "5"),
        ("7", {"default": "1", "validRange": {"min": "1", "max": "6"}}, None),
        (None, {"default": "20", "validRange": {"min": "1", "max": "6"}}, "20"),
    ],
)
def test_amounts_follow_the_request_policy(request_, policy, expected):
    assert charged(request_, "16", policy) == expected


def test_a_device_without_a_requested_capacity_is_ruled_out():
    assert charges({"other": Quantity.parse("1")}, {"c": capacity("1")}) is None


def test_the_bare_and_the_qualified_name_are_two_capacities():
    assert charges({"gpu.example.com/c": Quantity.parse("1")}, {"c": capacity("1")}) is None


def test_capacities_that_are_not_requested_are_charged_too():
    charges_ = charges({"c": Quantity.parse("1")}, {"c": capacity("8"), "bw": capacity("10Gi")})
    assert {name: str(amount) for name, amount in charges_.items()} == {"c": "1", "bw": "10Gi"}


@pytest.mark.parametrize("request_", ["1500001u", "9223372036854775807"])
def test_an_uncountable_request_is_an_error_and_not_a_refusal(request_):
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    with pytest.raises(CapacityError):
        charge(Quantity.parse(request_), capacity("16", policy))


@pytest.mark.parametrize(("request_", "value"), [(None, "-1"), ("-1", "8")])
def test_a_negative_amount_is_an_error(request_, value):
    with pytest.raises(CapacityError, match="negative"):
        charged(request_, value)
