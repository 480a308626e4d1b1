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
    before, handwritten = throughput.legacy_pod(), throughput.claiming_pod()
    for pod in (before, handwritten):  # the API server sets missing requests to the limits
        for container in pod["spec"]["containers"]:
            container["resources"]["requests"] = dict(container["resources"]["limits"])
    assert before != handwritten
    assert jsonpatch.apply_patch(before, floor.patch(throughput.claiming_pod())) == handwritten


def test_the_floor_is_registered_like_our_webhook():
    [our_webhook] = configurations(Configuration().dialects, Registration(ca_bundle="YQ=="))[0]["webhooks"]
    [floor_webhook] = floor.registration("https://127.0.0.1:1", b"a")["webhooks"]
    common_fields = our_webhook.keys() - {"clientConfig", "timeoutSeconds"}
    assert {"rules", "matchConditions", "namespaceSelector", "objectSelector", "reinvocationPolicy"} <= common_fields
    assert {key: floor_webhook[key] for key in common_fields} == {key: our_webhook[key] for key in common_fields}


@pytest.mark.parametrize("piece_size", [1, 70, 10_000])
def test_reviews_in_pieces_get_one_answer_each(piece_size):
    answers = []
    peer = floor.Peer(floor.encoded_answer(b"[1]"))
    peer.connection_made(SimpleNamespace(write=answers.append))
    body = json.dumps({"request": {"uid": UID}}).encode()
    request = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for number in (1, 2):
        for start in range(0, len(request), piece_size):
            assert len(answers) == number - 1
            peer.data_received(request[start : start + piece_size])
        assert len(answers) == number
    head, _, answer = answers[-1].partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(answer) in head
    response = json.loads(answer)["response"]
    assert (response["uid"], response["allowed"], b64decode(response["patch"])) == (UID, True, b"[1]")
