"""The name of a template is a hash of its content, and only drawbridge can sign templates."""

import hmac

import pytest

from dra import wire
from dra.objects import Pod
from webhook.claims import template
from webhook.claims.template import SignedPod, TemplatesError
from webhook.names import ORIGINAL

SPEC = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "c", "count": 2}}]}}}
NAME = template.name_of(SPEC)
KEY, OLD_KEY = b"new", b"old"
POD = SignedPod("team-a", "train-", "default", '{"containers":{"main":{"nvidia.com/gpu":"2"}}}')


def test_a_name_is_a_prefix_and_thirty_two_hex_digits():
    assert NAME.startswith("drawbridge-")
    assert len(NAME) == len("drawbridge-") + 32
    assert int(NAME.removeprefix("drawbridge-"), 16) >= 0


def test_a_name_is_that_of_the_content_whatever_the_order_of_members():
    assert template.name_of({"a": 1, "b": {"c": 2, "d": 3}}) == template.name_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert template.name_matches(NAME, SPEC)
    assert not template.name_matches(NAME[:-16], SPEC)
    assert not template.name_matches(NAME, {"spec": {}})


@pytest.mark.parametrize("key", [KEY, OLD_KEY])
def test_templates_signed_with_either_key_are_verified(key):
    assert template.verify(template.sign({NAME: SPEC}, key, POD), POD, KEY, OLD_KEY) == {NAME: SPEC}


@pytest.mark.parametrize(
    "other_pod",
    [
        POD._replace(namespace="team-b"),
        POD._replace(name="train-2"),
        POD._replace(account="builder"),
        POD._replace(original="{}"),
        SignedPod("team-atrain-", "", "default", POD.original),
        SignedPod("team-a", "train-default", "", POD.original),
    ],
)
def test_a_signature_is_invalid_on_another_pod(other_pod):
    with pytest.raises(TemplatesError, match="for this pod"):
        template.verify(template.sign({NAME: SPEC}, KEY, POD), other_pod, KEY)


def test_a_plain_hmac_with_the_secrets_key_is_no_signature():
    """The signing key is derived from the secret's key, so a signature for another purpose is invalid here."""
    body = template.canonical({NAME: SPEC})
    parts = [part.encode() for part in POD]
    covered = b"".join(b"%d:%b," % (len(part), part) for part in parts) + body
    assert template.signature_of(body, KEY, POD) != hmac.new(KEY, covered, "sha256").hexdigest()


def test_raw_and_typed_pods_have_the_same_identity():
    raw = {
        "metadata": {"generateName": "train-", "name": "train-x7", "annotations": {ORIGINAL: "{}"}},
        "spec": {"serviceAccountName": "builder"},
    }
    assert template.identify_raw(raw, "team-a") == template.identify(wire.convert(raw, Pod), "team-a")
    assert template.identify_raw(raw, "team-a") == SignedPod("team-a", "train-", "builder", "{}")


@pytest.mark.parametrize("raw", [{}, {"metadata": None, "spec": []}, {"metadata": {"annotations": 1, "name": 7}}])
def test_a_malformed_pod_has_an_identity_with_its_namespace(raw):
    assert template.identify_raw(raw, "team-a").namespace == "team-a"


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "v2",
        "v1 0 {}",
        "v2 0 {}",
        template.sign({NAME: SPEC}, b"another key", POD),
        template.sign({NAME: SPEC}, KEY, POD).replace('"count":2', '"count":8'),
        template.sign({"drawbridge-0000000000000000": SPEC}, KEY, POD),
        "v2 " + template.signature_of(b"{", KEY, POD) + " {",
        "v2 " + template.signature_of(b"[]", KEY, POD) + " []",
        "v2 \u00fc {}",
        "v2 \ud800 {}",
    ],
)
def test_a_templates_annotation_without_a_valid_signature_is_refused(annotation):
    with pytest.raises(TemplatesError):
        template.verify(annotation, POD, KEY)


def test_without_a_key_no_signature_is_valid():
    with pytest.raises(TemplatesError):
        template.verify(template.sign({NAME: SPEC}, KEY, POD), POD)
