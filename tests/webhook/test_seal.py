import json

import pytest

from webhook import seal

OLD, NEW = b"o" * 32, b"n" * 32
SPEC = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}


def sealed(key=NEW, namespace="ns"):
    return seal.close({"drawbridge-0123456789abcdef": SPEC}, namespace=namespace, keys=[key])


def test_what_was_sealed_here_opens_unchanged():
    assert seal.open_(sealed(), namespace="ns", keys=[NEW]) == {"drawbridge-0123456789abcdef": SPEC}


def test_a_key_that_was_replaced_still_opens():
    assert seal.open_(sealed(OLD), namespace="ns", keys=[NEW, OLD])


def test_the_order_of_members_does_not_matter():
    text = json.dumps(json.loads(sealed()), indent=1, sort_keys=True)
    assert seal.open_(text, namespace="ns", keys=[NEW])


def change(path, value):
    document = json.loads(sealed())
    (item,) = document.values()
    *way, last = path
    for step in way:
        item = item[step]
    item[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        change(["mac"], "0" * 64),
        change(["mac"], ""),
        change(["mac"], "ü"),
        change(["spec", "spec", "devices", "requests", 0, "exactly", "adminAccess"], True),
        sealed().replace("drawbridge-0123456789abcdef", "drawbridge-fedcba9876543210"),
        sealed(OLD),
        "",
        "[]",
        "{",
        '{"drawbridge-x":{"spec":{}}}',
        '{"drawbridge-x":' + '{"spec":' * 5000,
    ],
)
def test_what_was_changed_or_forged_does_not_open(text):
    with pytest.raises(seal.SealError):
        seal.open_(text, namespace="ns", keys=[NEW])


def test_a_seal_is_worth_nothing_in_another_namespace():
    with pytest.raises(seal.SealError, match="namespace there"):
        seal.open_(sealed(), namespace="there", keys=[NEW])
