import msgspec
import pytest

from dra import wire
from dra.objects.claim import ResourceClaimTemplate
from tests.objects import claim_template, exactly, pod, typed
from webhook.claims import template, template_lifecycle
from webhook.claims.template_lifecycle import Due
from webhook.dialects import Served
from webhook.names import ORIGINAL as ORIGINAL_ANNOTATION
from webhook.names import TEMPLATES
from webhook.state import Configuration, Features, Mode, State, mode_of, workload
from webhook.state.configuration import DEFAULT
from webhook.state.inventory import Inventory

KEY, OTHER = b"k" * 32, b"o" * 32


def spec(count=1, **fields):
    return claim_template("t", exactly("gpu.nvidia.com", name="gpu", count=count, **fields))["spec"]


WANTED = spec()
NAME = template.name_of(WANTED)


ORIGINAL = '{"containers":{"main":{"nvidia.com/gpu":"1"}}}'
POD = template.SignedPod("ns", "p", "default", ORIGINAL)


def sign(templates, key=KEY, whose=POD):
    return template.sign(templates, key, whose)


def signed_pod(*templates, annotation=None, phase="Pending", namespace="ns", name="p", **metadata):
    """Return a translated pod with claims of these templates; `annotation` is their signature."""
    annotations = {ORIGINAL_ANNOTATION: ORIGINAL} | ({} if annotation is None else {TEMPLATES: annotation})
    claims = [{"name": f"drawbridge-{i}", "resourceClaimTemplateName": name} for i, name in enumerate(templates)]
    fields = {"annotations": annotations, "resourceClaims": claims, "serviceAccountName": "default"} | metadata
    return typed(pod(name, namespace=namespace, phase=phase, **fields))


def stored(spec, name=NAME, labels=None, **metadata):
    value = template.object_of(name, spec, "ns")
    value["metadata"] |= metadata | ({} if labels is None else {"labels": labels})
    return wire.convert(value, ResourceClaimTemplate)


def test_a_pod_with_signed_templates_needs_them():
    signed = sign({NAME: WANTED})
    assert template_lifecycle.read_proven(signed_pod(NAME, annotation=signed), [OTHER, KEY]) == {("ns", NAME): WANTED}


def test_a_template_without_a_reference_is_not_needed():
    signed = sign({NAME: WANTED})
    assert template_lifecycle.read_proven(signed_pod("another-pods", annotation=signed), [KEY]) == {}


def test_a_finished_pod_needs_no_template():
    signed = sign({NAME: WANTED})
    assert template_lifecycle.read_proven(signed_pod(NAME, annotation=signed, phase="Succeeded"), [KEY]) == {}
    assert template_lifecycle.templates_of(signed_pod(NAME, phase="Failed")) == frozenset()


def test_a_pod_without_the_annotation_needs_no_template():
    assert template_lifecycle.read_proven(signed_pod(NAME), [KEY]) == {}


@pytest.mark.parametrize("annotation", ["x", "v2 00 {}", sign({NAME: WANTED}, OTHER), sign({NAME: spec(2)})])
def test_a_forged_signature_does_not_count(annotation):
    with pytest.raises(template.TemplatesError):
        template_lifecycle.read_proven(signed_pod(NAME, annotation=annotation), [KEY])


def test_admin_access_is_never_created_even_with_a_signature():
    wanted = spec(adminAccess=True)
    name = template.name_of(wanted)
    assert template_lifecycle.read_proven(signed_pod(name, annotation=sign({name: wanted})), [KEY]) == {}


def test_only_a_missing_template_is_created():
    assert template_lifecycle.due(WANTED, None) is Due.CREATE
    assert template_lifecycle.due(WANTED, stored(WANTED)) is Due.NOTHING
    assert template_lifecycle.due(WANTED, stored(WANTED, labels={})) is Due.NOTHING


def test_api_server_defaults_are_not_a_difference():
    bare = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}
    assert template_lifecycle.due(bare, stored(WANTED)) is Due.NOTHING


@pytest.mark.parametrize("other", [spec(2), spec(adminAccess=True), {"spec": {"devices": {}}}])
def test_other_content_is_replaced_only_if_it_is_ours(other):
    assert template_lifecycle.due(WANTED, stored(other)) is Due.REPLACE
    assert template_lifecycle.due(WANTED, stored(other, labels={})) is Due.TAKEN


def test_a_mismatched_unused_template_has_no_grace_period():
    other = stored(spec(7))
    assert template_lifecycle.sweep({}, [other], frozenset(), now=0.0, grace=60.0)[1] == [other]
    assert template_lifecycle.sweep({}, [other], frozenset({("ns", NAME)}), now=0.0, grace=60.0)[1] == []


# A signature proves that the webhook allowed the templates. The controller checks the rules in force again.


def state(mode="enforce", **fields):
    return State(namespaces={"ns": {"drawbridge.dev/mode": mode}}, **fields)


def test_an_enforcing_namespace_has_no_objection():
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state()) == ""


@pytest.mark.parametrize("mode", ["off", "observe", "warn"])
def test_no_template_is_made_where_the_webhook_changes_nothing(mode):
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(mode)) == f"the mode is {mode}"


def test_a_skipped_pod_gets_no_template():
    assert "skip" in template_lifecycle.objection(
        signed_pod(NAME, labels={"drawbridge.dev/skip": "true"}), [WANTED], state()
    )


def test_a_quota_on_the_original_key_blocks_the_template():
    limited = {"quotas": {"ns": frozenset({"requests.nvidia.com/gpu"})}}
    assert "requests.nvidia.com/gpu" in template_lifecycle.objection(signed_pod(NAME), [WANTED], state(**limited))
    elsewhere = {"quotas": {"other": frozenset({"requests.nvidia.com/gpu"})}}
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(**elsewhere)) == ""


def test_a_limit_range_on_the_original_key_blocks_the_template():
    ranged = state(limit_ranges={"ns": frozenset({"nvidia.com/gpu"})})
    assert "LimitRange limits nvidia.com/gpu" in template_lifecycle.objection(signed_pod(NAME), [WANTED], ranged)
    assert (
        template_lifecycle.objection(signed_pod(NAME), [WANTED], state(limit_ranges={"ns": frozenset({"cpu"})})) == ""
    )


def test_a_mapped_or_charged_quota_blocks_nothing():
    limited = {"quotas": {"ns": frozenset({"requests.nvidia.com/gpu"})}}
    mapped = Configuration(msgspec.structs.replace(DEFAULT, quotas={"nvidia.com/gpu": "x"}))
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(configuration=mapped, **limited)) == ""
    served = Served(name="gpu.nvidia.com", extended_resource="nvidia.com/gpu")
    charged = Inventory(known=True, classes={"gpu.nvidia.com": served})
    on = Features(minor=37, gates={"DRAExtendedResource": True})
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(fleet=charged, features=on, **limited)) == ""
    off = Features(minor=37, gates={"DRAExtendedResource": False})
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(fleet=charged, features=off, **limited))


@pytest.mark.parametrize("kind", ["Namespace", "ResourceQuota", "LimitRange"])
def test_no_template_is_made_in_an_unreadable_namespace(kind):
    objection = template_lifecycle.objection(signed_pod(NAME), [WANTED], state(unsure={"ns": (kind,)}))
    assert objection == f"the rules of its namespace could not be read: {kind} could not be read"
    assert template_lifecycle.objection(signed_pod(NAME), [WANTED], state(unsure={"other": (kind,)})) == ""


def test_the_canary_decides_as_it_did_at_admission():
    """A pod with a generated name was hashed by its prefix at admission. Its full name would make it another workload."""
    for percent in range(5, 100, 5):
        canary = Configuration(msgspec.structs.replace(DEFAULT, canary=percent))
        world = state(configuration=canary)
        metadata = {"generateName": "train-"}
        there = mode_of(world, workload("ns", metadata)) is Mode.ENFORCE
        stored_pod = signed_pod(NAME, generateName="train-", name="train-x7f2q")
        assert (template_lifecycle.objection(stored_pod, [WANTED], world) == "") is there


# A name that is taken


def test_a_name_with_matching_or_no_content_is_free():
    there = {("ns", NAME): stored(WANTED).spec.spec}
    assert template_lifecycle.name_conflicts({NAME: WANTED}, "ns", state()) == ()
    assert template_lifecycle.name_conflicts({NAME: WANTED}, "ns", state(templates=there)) == ()
    assert (
        template_lifecycle.name_conflicts(
            {NAME: WANTED}, "other", state(templates={("ns", NAME): stored(spec(7)).spec.spec})
        )
        == ()
    )


def test_a_name_with_other_content_is_reported_with_its_owner():
    there = {("ns", NAME): stored(spec(7)).spec.spec}
    (problem,) = template_lifecycle.name_conflicts(
        {NAME: WANTED}, "ns", state(templates=there, template_owners={("ns", NAME): "it belongs to Job x"})
    )
    assert f"ns/{NAME}" in problem
    assert "it belongs to Job x" in problem


def test_our_templates_are_swept_after_the_grace_period():
    mine, foreign = stored(WANTED), stored(WANTED, labels={})
    named = stored(WANTED, name="drawbridge-by-hand")
    everything = [mine, foreign, named]
    since, over = template_lifecycle.sweep({}, everything, frozenset(), now=100.0, grace=60.0)
    assert (since, over) == ({("ns", NAME): 100.0}, [])
    assert template_lifecycle.sweep(since, everything, frozenset(), now=159.0, grace=60.0)[1] == []
    assert template_lifecycle.sweep(since, everything, frozenset(), now=160.0, grace=60.0)[1] == [mine]


def test_a_used_template_is_no_longer_due_for_deletion():
    key = ("ns", NAME)
    since, _ = template_lifecycle.sweep({}, [stored(WANTED)], frozenset(), now=0.0, grace=60.0)
    since, _ = template_lifecycle.sweep(since, [stored(WANTED)], frozenset({key}), now=50.0, grace=60.0)
    assert since == {}
    assert template_lifecycle.sweep(since, [stored(WANTED)], frozenset(), now=70.0, grace=60.0) == ({key: 70.0}, [])


def test_a_template_that_is_already_being_deleted_is_left_alone():
    gone = stored(WANTED, deletionTimestamp="2026-01-01T00:00:00Z")
    assert template_lifecycle.sweep({("ns", NAME): 0.0}, [gone], frozenset(), now=1e6, grace=1.0) == ({}, [])
