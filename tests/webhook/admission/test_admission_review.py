import base64
import json

import pytest

from dra.finding import stated
from tests.loops import every
from webhook.admission import admission_review as reviews

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def valid_review_with(**changes):
    request = {"uid": UID, "operation": "CREATE", "object": {"kind": "Pod"}, "oldObject": None, "dryRun": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request} | changes


def decode(value):
    return reviews.decode(json.dumps(value).encode())


def test_a_valid_review_is_read_and_its_objects_stay_raw():
    request = decode(valid_review_with())
    assert (request.uid, request.operation, request.dry_run) == (UID, "CREATE", True)
    assert reviews.read(request.object) == {"kind": "Pod"}


def test_unknown_newer_fields_are_ignored():
    value = valid_review_with(fromTheFuture=1)
    value["request"]["alsoNew"] = {"x": [1]}
    assert decode(value).uid == UID


@every(
    ("body", "message_part"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"null", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b"{}", "expected admission.k8s.io/v1"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "got v1 Pod"),
        (b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"x"}}', "v1beta1"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "no request.uid"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}', "no request.uid"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}', "request.uid"),
        (b'{"request":' * 500_000, "nested"),
        (b'{"apiVersion":' + b"[" * 100_000, "not an AdmissionReview"),
        (json.dumps(valid_review_with()).encode()[:-9], "not JSON"),
        (json.dumps(valid_review_with()).encode() + b"x", "not JSON"),
    ],
)
def test_a_malformed_review_is_rejected_with_status_400(body, message_part):
    with pytest.raises(reviews.ReviewError) as caught:
        reviews.decode(body)
    assert caught.value.status == 400
    assert message_part in str(caught.value)


def test_a_response_without_changes_has_no_patch():
    assert json.loads(reviews.encode(reviews.allow(UID))) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


def test_a_patch_is_encoded_as_a_base64_json_patch():
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"a~/b": "ü"}}]
    response = json.loads(reviews.encode(reviews.allow(UID, operations=operations)))["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == operations


def test_a_denial_has_code_reason_and_message():
    response = json.loads(reviews.encode(reviews.deny(UID, reviews.DenialStatus(message="no"))))["response"]
    assert response["allowed"] is False
    assert response["status"] == {"code": 403, "reason": "Forbidden", "message": "no"}


def test_warnings_are_shortened_to_a_few_single_lines():
    texts = [f"number {i}: " + "word " * 100 + "\n\x1b[31m" for i in range(9)] + ["number 0: " + "word " * 100]
    shortened = reviews.shorten(texts)
    assert len(shortened) == reviews.MAX_WARNINGS
    assert all(len(text.encode()) <= reviews.MAX_WARNING and text.isprintable() for text in shortened)
    assert "5 more" in shortened[-1]


def test_a_warning_in_wide_characters_is_cut_by_bytes():
    (shortened,) = reviews.shorten(["模" * 400])
    assert len(shortened.encode()) <= reviews.MAX_WARNING


def test_a_long_warning_keeps_its_code():
    (shortened,) = reviews.shorten([stated("R023", "a word " * 80)])
    assert len(shortened.encode()) <= reviews.MAX_WARNING
    assert shortened.endswith("… [R023]")
    (without_code,) = reviews.shorten(["a word " * 80 + "[" + "x" * 300])
    assert without_code.endswith("…")
