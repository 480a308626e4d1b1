"""JSON pointers: how they are written, split, and converted from other kinds of paths."""

import pytest

from dra.objects import Pod
from dra.pointer import escape, field_path, member, of_path, split
from dra.wire import WireError, convert


@pytest.mark.parametrize("name", ["a", "", "a/b", "a~b", "~1", "~0/", "//"])
def test_an_escaped_name_is_one_part_of_a_pointer(name):
    assert split(f"/x/{escape(name)}") == ["x", name]
    assert split(member("/x", name)) == ["x", name]


def test_a_field_path_is_written_as_in_api_errors():
    assert field_path("/spec/devices/requests/0/name") == "spec.devices.requests[0].name"
    assert field_path("/metadata/labels/a~1b") == "metadata.labels[a/b]"


@pytest.mark.parametrize(
    ("path", "pointer"),
    [("$", ""), ("$.spec.devices[0].name", "/spec/devices/0/name"), ("$.a[...].b", "/a"), ("$[0]", "/0")],
)
def test_a_decoder_path_becomes_a_valid_pointer(path, pointer):
    assert of_path(path) == pointer


def test_an_error_in_a_map_points_at_the_map():
    with pytest.raises(WireError) as caught:
        convert({"spec": {"nodeSelector": {"a": 1}}}, Pod)
    assert caught.value.pointer == "/spec/nodeSelector"
