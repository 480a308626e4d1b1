"""The bytes of a watch, cut anywhere and broken in every way, and the events read from them."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ApiError, Gone, Throttled, Unavailable
from cluster.kubernetes.answers import Lines, Stream, decode_object, line, page
from cluster.protocol import Bookmark, Change, Unreadable
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cluster.objects import claim


def event(type_, obj):
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def versioned(name, version, **more):
    return claim(name, metadata={"namespace": "ns", "resourceVersion": str(version)}, **more)


BOOKMARK = {
    "kind": "ResourceClaim",
    "apiVersion": "resource.k8s.io/v1",
    "metadata": {"resourceVersion": "9"},
    "spec": {},
}
EVENTS = (
    event("ADDED", versioned("a", 1))
    + event("MODIFIED", versioned("grüße-\u2028", 2))
    + event("BOOKMARK", BOOKMARK)
    + event("DELETED", versioned("a", 3))
)


def feed(chunks, resource=RESOURCE_CLAIMS, **options):
    stream = Stream(resource, **options)
    events = [change for chunk in chunks for change in stream.feed(chunk)]
    stream.end()
    return events, stream.failure


def test_a_watch_in_one_piece():
    events, failure = feed([EVENTS])
    assert failure is None
    assert [type(event).__name__ for event in events] == ["Change", "Change", "Bookmark", "Change"]
    assert [event.resource_version for event in events] == ["1", "2", "9", "3"]
    assert [event.type for event in events if isinstance(event, Change)] == ["ADDED", "MODIFIED", "DELETED"]


@given(st.lists(st.integers(0, len(EVENTS)), max_size=12))
def test_a_watch_may_be_cut_anywhere(cuts):
    edges = [0, *sorted(cuts), len(EVENTS)]
    chunks = [EVENTS[start:end] for start, end in pairwise(edges)]
    assert feed(chunks) == feed([EVENTS])


def test_bytes_may_come_one_by_one():
    assert feed([bytes([byte]) for byte in EVENTS]) == feed([EVENTS])


def test_a_line_may_exceed_the_limits_of_libraries():
    device = {"name": "d", "attributes": {f"a-{n}": {"string": "x" * 64} for n in range(32)}}
    big = {"metadata": {"name": "s", "resourceVersion": "1"}, "spec": {"devices": [device] * 300}}
    data = event("ADDED", big)
    assert len(data) > 512 * 1024
    events, failure = feed([data[i : i + 65536] for i in range(0, len(data), 65536)], RESOURCE_SLICES)
    assert failure is None
    assert len(events[0].object.spec.devices) == 300


def test_a_line_without_end_is_not_collected_forever():
    events, failure = feed([b"x" * 600] * 3, longest=1000)
    assert events == []
    assert isinstance(failure, Unavailable)
    assert "exceeds 1000 bytes" in str(failure)


def test_a_watch_broken_within_a_line_yields_whole_events():
    events, failure = feed([EVENTS[:-20]])
    assert len(events) == 3
    assert isinstance(failure, Unavailable)
    assert "in the middle of a line" in str(failure)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 502 Bad Gateway\n",
        b"<html>\n",
        b"null\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"object":{}}\n',
        b'{"type":"RENAMED","object":{"metadata":{}}}\n',
        b'{"type":"ADDED","object":[]}\n',
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"ADDED","object":{"metadata":7}}\n',
        b'{"type":"ERROR","object":"oops"}\n',
        b"\xff\xfe\x00\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"ADDED","object":' + b'{"a":' * 100_000 + b"\n",
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n',
    ],
)
def test_a_garbage_line_ends_the_watch(garbage):
    events, failure = feed([event("ADDED", versioned("a", 1)) + garbage + event("ADDED", versioned("b", 2))])
    assert [event.object.metadata.name for event in events] == ["a"]
    assert isinstance(failure, Unavailable)
    assert "is not valid" in str(failure)


def test_a_stream_yields_nothing_after_a_failure():
    stream = Stream(RESOURCE_CLAIMS)
    assert stream.feed(b"nonsense\n") == []
    first = stream.failure
    assert stream.feed(EVENTS) == []
    stream.end()
    assert stream.failure is first


def status(code, reason, **more):
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "because"} | more)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (status(410, "Expired"), Gone),
        (status(410, "Gone"), Gone),
        (status(0, "Expired"), Gone),
        (status(429, "TooManyRequests", details={"retryAfterSeconds": 7}), Throttled),
        (status(500, "InternalError"), ApiError),
        (status(504, "Timeout"), Unavailable),
        (event("ERROR", {}), ApiError),
    ],
)
def test_an_error_event_is_raised_as_its_error(data, kind):
    events, failure = feed([event("ADDED", versioned("a", 1)) + data])
    assert len(events) == 1
    assert type(failure) is kind
    if kind is Throttled:
        assert failure.retry_after == 7


def test_an_object_of_the_wrong_shape_does_not_end_watching():
    bad = versioned("bad", 5, spec={"devices": {"requests": {"not": "a list"}}})
    events, failure = feed([event("ADDED", bad) + event("DELETED", bad) + event("ADDED", versioned("good", 6))])
    assert failure is None
    first, second, third = events
    assert isinstance(first, Unreadable)
    assert (first.namespace, first.name, first.resource_version, first.deleted) == ("ns", "bad", "5", False)
    assert "/object/spec/devices/requests" in first.problem
    assert second.deleted
    assert third.object.metadata.name == "good"


def test_a_null_field_is_absent():
    text = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1","creationTimestamp":null},"status":null}}'
    assert line(text, RESOURCE_CLAIMS).object.metadata.name == "a"


def test_the_end_of_a_streamed_list_is_marked():
    meta = {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert line(event("BOOKMARK", {"metadata": meta}), RESOURCE_CLAIMS) == Bookmark("12", initial_end=True)


def test_plain_events_keep_everything():
    change = line(event("ADDED", {"metadata": {"name": "a", "resourceVersion": "1"}, "odd": [None]}), CONFIG_MAPS.raw)
    assert change == Change("ADDED", {"metadata": {"name": "a", "resourceVersion": "1"}, "odd": [None]}, "1")


def test_empty_lines_are_ignored():
    assert list(Lines().feed(b"\n\n  \n\r\na\n")) == [b"a"]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_equal_those_of_splitting_the_whole(chunks):
    lines = Lines()
    given_out = [text for chunk in chunks for text in lines.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert given_out == [text for text in whole if text and not text.isspace()]
    assert lines.unfinished == len(rest)


@given(st.binary(max_size=200))
def test_no_input_makes_a_stream_raise(data):
    feed([data])


def test_a_page_names_the_items_it_cannot_read():
    items = [versioned("a", 1), versioned("bad", 2, spec=7), versioned("c", 3)]
    body = msgspec.json.encode({"metadata": {"resourceVersion": "9", "continue": "next"}, "items": items})
    listed = page(body, RESOURCE_CLAIMS)
    assert [item.metadata.name for item in listed.items] == ["a", "c"]
    assert [(broken.name, broken.resource_version) for broken in listed.unreadable] == [("bad", "2")]
    assert (listed.resource_version, listed.more) == ("9", "next")


def test_a_page_without_items_is_empty():
    assert page(b'{"metadata":{"resourceVersion":"9"},"items":null}', RESOURCE_CLAIMS).items == ()


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"metadata":{},"items":7}', b'{"metadata":{}}', b'{"items":[]}']
)
def test_a_list_answer_of_the_wrong_shape_is_unavailable(body):
    with pytest.raises(Unavailable, match="not a list of resourceclaims"):
        page(body, RESOURCE_CLAIMS)


def test_an_object_answer_of_the_wrong_shape_is_unavailable():
    for body in (b"OK", b"{}", b'{"status":"ok"}', b'{"metadata":{"name":""}}'):
        with pytest.raises(Unavailable, match="not a ResourceClaim"):
            decode_object(body, RESOURCE_CLAIMS)
        with pytest.raises(Unavailable, match="not a ResourceClaim"):
            decode_object(body, RESOURCE_CLAIMS.raw)
