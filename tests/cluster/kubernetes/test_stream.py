"""Events are read from the bytes of a watch, in chunks of any size, and from truncated and invalid bytes."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ApiError, Gone, Throttled, Unavailable
from cluster.kubernetes.answers import Stream, decode_object, line, page
from cluster.protocol import Bookmark, Change, Unreadable
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cluster.objects import claim
from tests.loops import every


def encoded_event(type_, obj):
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def claim_of_version(name, version, **fields):
    return claim(name, metadata={"namespace": "ns", "resourceVersion": str(version)}, **fields)


BOOKMARK = {
    "kind": "ResourceClaim",
    "apiVersion": "resource.k8s.io/v1",
    "metadata": {"resourceVersion": "9"},
    "spec": {},
}
ENCODED_EVENTS = (
    encoded_event("ADDED", claim_of_version("a", 1))
    + encoded_event("MODIFIED", claim_of_version("grüße-\u2028", 2))
    + encoded_event("BOOKMARK", BOOKMARK)
    + encoded_event("DELETED", claim_of_version("a", 3))
)


def read_stream(chunks, resource=RESOURCE_CLAIMS, **options):
    """Return the events of a watch, and the failure that ended the watch, or None."""
    stream = Stream(resource, **options)
    events = [change for chunk in chunks for change in stream.feed(chunk)]
    stream.end()
    return events, stream.failure


def test_a_watch_in_one_chunk_yields_all_events():
    events, failure = read_stream([ENCODED_EVENTS])
    assert failure is None
    assert [type(event).__name__ for event in events] == ["Change", "Change", "Bookmark", "Change"]
    assert [event.resource_version for event in events] == ["1", "2", "9", "3"]
    assert [event.type for event in events if isinstance(event, Change)] == ["ADDED", "MODIFIED", "DELETED"]


@given(st.lists(st.integers(0, len(ENCODED_EVENTS)), max_size=12))
def test_chunk_boundaries_do_not_change_the_events(boundaries):
    edges = [0, *sorted(boundaries), len(ENCODED_EVENTS)]
    chunks = [ENCODED_EVENTS[start:end] for start, end in pairwise(edges)]
    assert read_stream(chunks) == read_stream([ENCODED_EVENTS])


def test_a_line_of_more_than_512_kib_is_read():
    device = {"name": "d", "attributes": {f"a-{n}": {"string": "x" * 64} for n in range(32)}}
    large_slice = {"metadata": {"name": "s", "resourceVersion": "1"}, "spec": {"devices": [device] * 300}}
    data = encoded_event("ADDED", large_slice)
    assert len(data) > 512 * 1024
    events, failure = read_stream([data[i : i + 65536] for i in range(0, len(data), 65536)], RESOURCE_SLICES)
    assert failure is None
    assert len(events[0].object.spec.devices) == 300


def test_a_line_longer_than_the_limit_ends_the_stream():
    events, failure = read_stream([b"x" * 600] * 3, longest=1000)
    assert events == []
    assert isinstance(failure, Unavailable)
    assert "exceeds 1000 bytes" in str(failure)


def test_a_watch_truncated_within_a_line_yields_the_complete_events():
    events, failure = read_stream([ENCODED_EVENTS[:-20]])
    assert len(events) == 3
    assert isinstance(failure, Unavailable)
    assert "in the middle of a line" in str(failure)


@every(
    "invalid_line",
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
def test_an_invalid_line_ends_the_watch(invalid_line):
    events, failure = read_stream(
        [
            encoded_event("ADDED", claim_of_version("a", 1))
            + invalid_line
            + encoded_event("ADDED", claim_of_version("b", 2))
        ]
    )
    assert [event.object.metadata.name for event in events] == ["a"]
    assert isinstance(failure, Unavailable)
    assert "is not valid" in str(failure)


def test_a_stream_yields_nothing_after_a_failure():
    stream = Stream(RESOURCE_CLAIMS)
    assert stream.feed(b"nonsense\n") == []
    first_failure = stream.failure
    assert stream.feed(ENCODED_EVENTS) == []
    stream.end()
    assert stream.failure is first_failure


def error_event(code, reason, **fields):
    return encoded_event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "because"} | fields)


@pytest.mark.parametrize(
    ("data", "error_type"),
    [
        (error_event(410, "Expired"), Gone),
        (error_event(410, "Gone"), Gone),
        (error_event(0, "Expired"), Gone),
        (error_event(429, "TooManyRequests", details={"retryAfterSeconds": 7}), Throttled),
        (error_event(500, "InternalError"), ApiError),
        (error_event(504, "Timeout"), Unavailable),
        (encoded_event("ERROR", {}), ApiError),
    ],
)
def test_an_error_event_becomes_the_failure_of_the_stream(data, error_type):
    events, failure = read_stream([encoded_event("ADDED", claim_of_version("a", 1)) + data])
    assert len(events) == 1
    assert type(failure) is error_type
    if error_type is Throttled:
        assert failure.retry_after == 7


def test_an_object_of_wrong_type_does_not_end_watches():
    malformed_claim = claim_of_version("bad", 5, spec={"devices": {"requests": {"not": "a list"}}})
    events, failure = read_stream(
        [
            encoded_event("ADDED", malformed_claim)
            + encoded_event("DELETED", malformed_claim)
            + encoded_event("ADDED", claim_of_version("good", 6))
        ]
    )
    assert failure is None
    first, second, third = events
    assert isinstance(first, Unreadable)
    assert (first.namespace, first.name, first.resource_version, first.deleted) == ("ns", "bad", "5", False)
    assert "/object/spec/devices/requests" in first.problem
    assert second.deleted
    assert third.object.metadata.name == "good"


def test_a_null_field_is_read_as_absent():
    text = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1","creationTimestamp":null},"status":null}}'
    assert line(text, RESOURCE_CLAIMS).object.metadata.name == "a"


def test_a_bookmark_marks_the_end_of_a_streamed_list():
    meta = {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert line(encoded_event("BOOKMARK", {"metadata": meta}), RESOURCE_CLAIMS) == Bookmark("12", initial_end=True)


def test_events_of_plain_objects_keep_unknown_fields():
    change = line(
        encoded_event("ADDED", {"metadata": {"name": "a", "resourceVersion": "1"}, "odd": [None]}), CONFIG_MAPS.raw
    )
    assert change == Change("ADDED", {"metadata": {"name": "a", "resourceVersion": "1"}, "odd": [None]}, "1")


@given(st.binary(max_size=200))
def test_no_bytes_make_a_stream_raise(data):
    read_stream([data])


def test_a_page_lists_its_unreadable_items_by_name():
    items = [claim_of_version("a", 1), claim_of_version("bad", 2, spec=7), claim_of_version("c", 3)]
    body = msgspec.json.encode({"metadata": {"resourceVersion": "9", "continue": "next"}, "items": items})
    result = page(body, RESOURCE_CLAIMS)
    assert [item.metadata.name for item in result.items] == ["a", "c"]
    assert [(unreadable.name, unreadable.resource_version) for unreadable in result.unreadable] == [("bad", "2")]
    assert (result.resource_version, result.more) == ("9", "next")


def test_a_page_without_items_is_empty():
    assert page(b'{"metadata":{"resourceVersion":"9"},"items":null}', RESOURCE_CLAIMS).items == ()


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"metadata":{},"items":7}', b'{"metadata":{}}', b'{"items":[]}']
)
def test_an_answer_that_is_no_list_raises_unavailable(body):
    with pytest.raises(Unavailable, match="not a list of resourceclaims"):
        page(body, RESOURCE_CLAIMS)


def test_an_answer_without_a_named_object_raises_unavailable():
    for body in (b"OK", b"{}", b'{"status":"ok"}', b'{"metadata":{"name":""}}'):
        with pytest.raises(Unavailable, match="not a ResourceClaim"):
            decode_object(body, RESOURCE_CLAIMS)
        with pytest.raises(Unavailable, match="not a ResourceClaim"):
            decode_object(body, RESOURCE_CLAIMS.raw)
