"""Templates are what their names say, and only what we sealed is ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.claims import template
from webhook.claims.template import TemplatesError

SPEC = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "c", "count": 2}}]}}}
NAME = template.name_of(SPEC)
KEY, OLD = b"new", b"old"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_a_name_is_a_prefix_and_sixteen_hex_digits():
    assert NAME.startswith("drawbridge-")
    assert len(NAME) == len("drawbridge-") + 16
    assert int(NAME.removeprefix("drawbridge-"), 16) >= 0


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_the_order_of_members_does_not_change_the_name(value):
    assert template.name_of(value) == template.name_of(dict(reversed(value.items())))


def test_another_content_is_another_name():
    assert template.name_of({"spec": {}}) != NAME


def test_what_was_sealed_is_read_back():
    assert template.unseal(template.seal({NAME: SPEC}, KEY), KEY) == {NAME: SPEC}


def test_an_older_key_still_reads_during_a_rotation():
    assert template.unseal(template.seal({NAME: SPEC}, OLD), KEY, OLD) == {NAME: SPEC}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "v1",
        "v2 0 {}",
        "v1 0 {}",
        template.seal({NAME: SPEC}, b"somebody else's"),
        template.seal({NAME: SPEC}, KEY).replace('"count":2', '"count":8'),
        template.seal({"drawbridge-0000000000000000": SPEC}, KEY),
        "v1 " + template._code(b"{", KEY) + " {",
        "v1 " + template._code(b"[]", KEY) + " []",
        "v1 \u00fc {}",
    ],
)
def test_what_was_not_sealed_so_is_refused(value):
    with pytest.raises(TemplatesError):
        template.unseal(value, KEY)


def test_without_any_key_nothing_is_believed():
    with pytest.raises(TemplatesError):
        template.unseal(template.seal({NAME: SPEC}, KEY))
