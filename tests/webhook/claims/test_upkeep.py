import pytest

from dra import wire
from dra.objects.claim import ResourceClaimTemplate
from dra.objects.pod import Pod
from webhook.claims import template, upkeep
from webhook.claims.upkeep import Due
from webhook.names import TEMPLATES

KEY, OTHER = b"k" * 32, b"o" * 32


def spec(count=1, **exactly):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count, **exactly}}  # fmt: skip
    return {"spec": {"devices": {"requests": [request]}}}


WANTED = spec()
NAME = template.name_of(WANTED)


def pod(*names, annotation=None, phase="Pending", namespace="ns"):
    annotations = {} if annotation is None else {TEMPLATES: annotation}
    claims = [{"name": f"drawbridge-{i}", "resourceClaimTemplateName": name} for i, name in enumerate(names)]
    value = {
        "metadata": {"name": "p", "namespace": namespace, "annotations": annotations},
        "spec": {"resourceClaims": claims},
        "status": {"phase": phase},
    }
    return wire.convert(value, Pod)


def stored(spec, name=NAME, labels=None, **metadata):
    value = template.object_of(name, spec, "ns")
    value["metadata"] |= metadata | ({} if labels is None else {"labels": labels})
    return wire.convert(value, ResourceClaimTemplate)


def test_a_pod_that_proves_its_templates_wants_them():
    sealed = template.seal({NAME: WANTED}, KEY)
    assert upkeep.proven(pod(NAME, annotation=sealed), [OTHER, KEY]) == {("ns", NAME): WANTED}


def test_a_template_that_the_pod_does_not_refer_to_is_not_wanted():
    sealed = template.seal({NAME: WANTED}, KEY)
    assert upkeep.proven(pod("somebody-elses", annotation=sealed), [KEY]) == {}


def test_a_pod_that_is_over_wants_nothing():
    sealed = template.seal({NAME: WANTED}, KEY)
    assert upkeep.proven(pod(NAME, annotation=sealed, phase="Succeeded"), [KEY]) == {}
    assert upkeep.used(pod(NAME, phase="Failed")) == frozenset()


def test_a_pod_without_the_annotation_wants_nothing_and_is_no_forgery():
    assert upkeep.proven(pod(NAME), [KEY]) == {}


@pytest.mark.parametrize(
    "annotation", ["x", "v1 00 {}", template.seal({NAME: WANTED}, OTHER), template.seal({NAME: spec(2)}, KEY)]
)
def test_a_forged_proof_is_none(annotation):
    with pytest.raises(template.TemplatesError):
        upkeep.proven(pod(NAME, annotation=annotation), [KEY])


def test_admin_access_is_never_made_even_with_a_proof():
    wanted = spec(adminAccess=True)
    name = template.name_of(wanted)
    assert upkeep.proven(pod(name, annotation=template.seal({name: wanted}, KEY)), [KEY]) == {}


def test_a_missing_template_is_created_and_an_equal_one_is_left():
    assert upkeep.due(WANTED, None) is Due.CREATE
    assert upkeep.due(WANTED, stored(WANTED)) is Due.NOTHING
    assert upkeep.due(WANTED, stored(WANTED, labels={})) is Due.NOTHING


def test_defaults_that_the_api_server_filled_in_are_no_difference():
    bare = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}
    assert upkeep.due(bare, stored(WANTED)) is Due.NOTHING


@pytest.mark.parametrize("other", [spec(2), spec(adminAccess=True), {"spec": {"devices": {}}}])
def test_other_content_under_our_name_is_replaced(other):
    assert upkeep.due(WANTED, stored(other)) is Due.REPLACE


def test_only_what_is_ours_is_swept_and_only_after_the_grace_period():
    mine, foreign = stored(WANTED), stored(WANTED, labels={})
    named = stored(WANTED, name="drawbridge-by-hand")
    everything = [mine, foreign, named]
    since, over = upkeep.swept({}, everything, frozenset(), now=100.0, grace=60.0)
    assert (since, over) == ({("ns", NAME): 100.0}, [])
    assert upkeep.swept(since, everything, frozenset(), now=159.0, grace=60.0)[1] == []
    assert upkeep.swept(since, everything, frozenset(), now=160.0, grace=60.0)[1] == [mine]


def test_use_ends_the_waiting():
    key = ("ns", NAME)
    since, _ = upkeep.swept({}, [stored(WANTED)], frozenset(), now=0.0, grace=60.0)
    since, _ = upkeep.swept(since, [stored(WANTED)], frozenset({key}), now=50.0, grace=60.0)
    assert since == {}
    assert upkeep.swept(since, [stored(WANTED)], frozenset(), now=70.0, grace=60.0) == ({key: 70.0}, [])


def test_what_is_being_deleted_already_is_left_to_it():
    gone = stored(WANTED, deletionTimestamp="2026-01-01T00:00:00Z")
    assert upkeep.swept({("ns", NAME): 0.0}, [gone], frozenset(), now=1e6, grace=1.0) == ({}, [])
