"""The floor (the smallest possible webhook): its patch, its registration (like drawbridge's own), and reviews that arrive in pieces."""

import json
from base64 import b64decode
from types import SimpleNamespace

import jsonpatch
import pytest

from bench.webhook import floor, throughput
from webhook.registration import Registration, configurations
from webhook.state import Configuration

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def test_the_patched_legacy_pod_equals_the_handwritten_one():
    before, by_hand = throughput.legacy_pod(), throughput.claiming_pod()
    for pod in (before, by_hand):  # as the API server defaults requests
        for container in pod["spec"]["containers"]:
            container["resources"]["requests"] = dict(container["resources"]["limits"])
    assert before != by_hand
    assert jsonpatch.apply_patch(before, floor.patch(throughput.claiming_pod())) == by_hand


def test_it_is_called_for_what_ours_is_called_for():
    [ours] = configurations(Configuration().dialects, Registration(ca_bundle="YQ=="))[0]["webhooks"]
    [least] = floor.registration("https://127.0.0.1:1", b"a")["webhooks"]
    same = ours.keys() - {"clientConfig", "timeoutSeconds"}
    assert {"rules", "matchConditions", "namespaceSelector", "objectSelector", "reinvocationPolicy"} <= same
    assert {key: least[key] for key in same} == {key: ours[key] for key in same}


@pytest.mark.parametrize("size", [1, 70, 10_000])
def test_reviews_in_pieces_get_one_answer_each(size):
    written = []
    peer = floor.Peer(floor.encoded_answer(b"[1]"))
    peer.connection_made(SimpleNamespace(write=written.append))
    body = json.dumps({"request": {"uid": UID}}).encode()
    whole = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for number in (1, 2):
        for start in range(0, len(whole), size):
            assert len(written) == number - 1
            peer.data_received(whole[start : start + size])
        assert len(written) == number
    head, _, answer = written[-1].partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(answer) in head
    said = json.loads(answer)["response"]
    assert (said["uid"], said["allowed"], b64decode(said["patch"])) == (UID, True, b"[1]")
