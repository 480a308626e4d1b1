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

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def spec(count=1, **fields):
    return claim_template("t", exactly("gpu.nvidia.com", name="gpu", count=count, **fields))["spec"]


SIGNED_SPEC = spec()
NAME = template.name_of(SIGNED_SPEC)


ORIGINAL = '{"containers":{"main":{"nvidia.com/gpu":"1"}}}'
POD = template.SignedPod("ns", "p", "default", ORIGINAL)


def sign(templates, key=KEY, identity=POD):
    return template.sign(templates, key, identity)


def signed_pod(*templates, annotation=None, phase="Pending", namespace="ns", name="p", **metadata):
    """Return a translated pod with claims of these templates; `annotation` is their signature."""
    annotations = {ORIGINAL_ANNOTATION: ORIGINAL} | ({} if annotation is None else {TEMPLATES: annotation})
    claims = [{"name": f"drawbridge-{i}", "resourceClaimTemplateName": name} for i, name in enumerate(templates)]
    fields = {"annotations": annotations, "resourceClaims": claims, "serviceAccountName": "default"} | metadata
    return typed(pod(name, namespace=namespace, phase=phase, **fields))


def stored(spec, name=NAME, labels=None, **metadata):
    """Return a template of the cluster, with the labels of drawbridge or with `labels` instead."""
    value = template.object_of(name, spec, "ns")
    value["metadata"] |= metadata | ({} if labels is None else {"labels": labels})
    return wire.convert(value, ResourceClaimTemplate)


def test_a_pod_with_signed_templates_needs_them():
    signed = sign({NAME: SIGNED_SPEC})
    assert template_lifecycle.read_proven(signed_pod(NAME, annotation=signed), [OTHER_KEY, KEY]) == {
        ("ns", NAME): SIGNED_SPEC
    }


def test_a_signed_template_without_reference_is_not_needed():
    signed = sign({NAME: SIGNED_SPEC})
    assert template_lifecycle.read_proven(signed_pod("another-pods", annotation=signed), [KEY]) == {}


def test_a_finished_pod_needs_no_template():
    signed = sign({NAME: SIGNED_SPEC})
    assert template_lifecycle.read_proven(signed_pod(NAME, annotation=signed, phase="Succeeded"), [KEY]) == {}
    assert template_lifecycle.templates_of(signed_pod(NAME, phase="Failed")) == frozenset()


def test_a_pod_without_the_annotation_needs_no_template():
    assert template_lifecycle.read_proven(signed_pod(NAME), [KEY]) == {}


@pytest.mark.parametrize("annotation", ["x", "v2 00 {}", sign({NAME: SIGNED_SPEC}, OTHER_KEY), sign({NAME: spec(2)})])
def test_a_forged_signature_is_an_error(annotation):
    with pytest.raises(template.TemplatesError):
        template_lifecycle.read_proven(signed_pod(NAME, annotation=annotation), [KEY])


def test_admin_access_is_never_created_even_with_a_signature():
    admin_spec = spec(adminAccess=True)
    name = template.name_of(admin_spec)
    assert template_lifecycle.read_proven(signed_pod(name, annotation=sign({name: admin_spec})), [KEY]) == {}


def test_only_a_missing_template_is_created():
    assert template_lifecycle.due(SIGNED_SPEC, None) is Due.CREATE
    assert template_lifecycle.due(SIGNED_SPEC, stored(SIGNED_SPEC)) is Due.NOTHING
    assert template_lifecycle.due(SIGNED_SPEC, stored(SIGNED_SPEC, labels={})) is Due.NOTHING


def test_api_server_defaults_are_not_a_difference():
    bare = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}
    assert template_lifecycle.due(bare, stored(SIGNED_SPEC)) is Due.NOTHING


@pytest.mark.parametrize("other_spec", [spec(2), spec(adminAccess=True), {"spec": {"devices": {}}}])
def test_only_our_own_template_with_other_content_is_replaced(other_spec):
    assert template_lifecycle.due(SIGNED_SPEC, stored(other_spec)) is Due.REPLACE
    assert template_lifecycle.due(SIGNED_SPEC, stored(other_spec, labels={})) is Due.TAKEN


def test_a_mismatched_unused_template_has_no_grace_period():
    """The hash in the name of the template is not that of its content."""
    mismatched = stored(spec(7))
    assert template_lifecycle.sweep({}, [mismatched], frozenset(), now=0.0, grace=60.0)[1] == [mismatched]
    assert template_lifecycle.sweep({}, [mismatched], frozenset({("ns", NAME)}), now=0.0, grace=60.0)[1] == []


# A signature proves that the webhook allowed the templates. The controller checks the current rules of the namespace again.


def state(mode="enforce", **fields):
    return State(namespaces={"ns": {"drawbridge.dev/mode": mode}}, **fields)


def test_a_template_may_be_created_in_an_enforcing_namespace():
    assert template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state()) == ""


@pytest.mark.parametrize("mode", ["off", "observe", "warn"])
def test_no_template_is_created_in_a_namespace_without_mode_enforce(mode):
    assert template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(mode)) == f"the mode is {mode}"


def test_a_skipped_pod_gets_no_template():
    assert "skip" in template_lifecycle.objection(
        signed_pod(NAME, labels={"drawbridge.dev/skip": "true"}), [SIGNED_SPEC], state()
    )


def test_a_quota_on_the_original_key_blocks_the_template():
    limited = {"quotas": {"ns": frozenset({"requests.nvidia.com/gpu"})}}
    assert "requests.nvidia.com/gpu" in template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(**limited))
    elsewhere = {"quotas": {"other": frozenset({"requests.nvidia.com/gpu"})}}
    assert template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(**elsewhere)) == ""


def test_a_limit_range_on_the_original_key_blocks_the_template():
    with_limit_range = state(limit_ranges={"ns": frozenset({"nvidia.com/gpu"})})
    assert "LimitRange limits nvidia.com/gpu" in template_lifecycle.objection(
        signed_pod(NAME), [SIGNED_SPEC], with_limit_range
    )
    assert (
        template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(limit_ranges={"ns": frozenset({"cpu"})}))
        == ""
    )


def test_a_mapped_or_charged_quota_blocks_no_template():
    """Claims do not bypass a quota that the configuration maps to a new key, or that Kubernetes charges for the claims."""
    limited = {"quotas": {"ns": frozenset({"requests.nvidia.com/gpu"})}}
    mapped = Configuration(msgspec.structs.replace(DEFAULT, quotas={"nvidia.com/gpu": "x"}))
    assert template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(configuration=mapped, **limited)) == ""
    device_class = Served(name="gpu.nvidia.com", extended_resource="nvidia.com/gpu")
    charging_fleet = Inventory(known=True, classes={"gpu.nvidia.com": device_class})
    gate_on = Features(minor=37, gates={"DRAExtendedResource": True})
    assert (
        template_lifecycle.objection(
            signed_pod(NAME), [SIGNED_SPEC], state(fleet=charging_fleet, features=gate_on, **limited)
        )
        == ""
    )
    gate_off = Features(minor=37, gates={"DRAExtendedResource": False})
    assert template_lifecycle.objection(
        signed_pod(NAME), [SIGNED_SPEC], state(fleet=charging_fleet, features=gate_off, **limited)
    )


@pytest.mark.parametrize("kind", ["Namespace", "ResourceQuota", "LimitRange"])
def test_no_template_is_created_in_a_namespace_with_unreadable_rules(kind):
    objection = template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(unsure={"ns": (kind,)}))
    assert objection == f"the rules of its namespace could not be read: {kind} could not be read"
    assert template_lifecycle.objection(signed_pod(NAME), [SIGNED_SPEC], state(unsure={"other": (kind,)})) == ""


def test_a_canary_percentage_selects_the_same_pods_as_at_admission():
    """At admission, the webhook hashed the prefix of a generated name. A hash of the full name would select other pods."""
    for percent in range(5, 100, 5):
        canary = Configuration(msgspec.structs.replace(DEFAULT, canary=percent))
        cluster_state = state(configuration=canary)
        metadata = {"generateName": "train-"}
        is_enforced = mode_of(cluster_state, workload("ns", metadata)) is Mode.ENFORCE
        stored_pod = signed_pod(NAME, generateName="train-", name="train-x7f2q")
        assert (template_lifecycle.objection(stored_pod, [SIGNED_SPEC], cluster_state) == "") is is_enforced


# Conflicts of names


def test_a_template_name_with_equal_content_is_free():
    templates = {("ns", NAME): stored(SIGNED_SPEC).spec.spec}
    assert template_lifecycle.name_conflicts({NAME: SIGNED_SPEC}, "ns", state()) == ()
    assert template_lifecycle.name_conflicts({NAME: SIGNED_SPEC}, "ns", state(templates=templates)) == ()
    assert (
        template_lifecycle.name_conflicts(
            {NAME: SIGNED_SPEC}, "other", state(templates={("ns", NAME): stored(spec(7)).spec.spec})
        )
        == ()
    )


def test_a_conflict_of_names_reports_the_other_templates_owner():
    templates = {("ns", NAME): stored(spec(7)).spec.spec}
    (problem,) = template_lifecycle.name_conflicts(
        {NAME: SIGNED_SPEC}, "ns", state(templates=templates, template_owners={("ns", NAME): "it belongs to Job x"})
    )
    assert f"ns/{NAME}" in problem
    assert "it belongs to Job x" in problem


def test_our_unused_templates_are_deleted_after_the_grace_period():
    own_template, foreign_template = stored(SIGNED_SPEC), stored(SIGNED_SPEC, labels={})
    named_by_hand = stored(SIGNED_SPEC, name="drawbridge-by-hand")
    templates = [own_template, foreign_template, named_by_hand]
    unused_since, expired = template_lifecycle.sweep({}, templates, frozenset(), now=100.0, grace=60.0)
    assert (unused_since, expired) == ({("ns", NAME): 100.0}, [])
    assert template_lifecycle.sweep(unused_since, templates, frozenset(), now=159.0, grace=60.0)[1] == []
    assert template_lifecycle.sweep(unused_since, templates, frozenset(), now=160.0, grace=60.0)[1] == [own_template]


def test_a_used_template_is_no_longer_due_for_deletion():
    key = ("ns", NAME)
    unused_since, _ = template_lifecycle.sweep({}, [stored(SIGNED_SPEC)], frozenset(), now=0.0, grace=60.0)
    unused_since, _ = template_lifecycle.sweep(
        unused_since, [stored(SIGNED_SPEC)], frozenset({key}), now=50.0, grace=60.0
    )
    assert unused_since == {}
    assert template_lifecycle.sweep(unused_since, [stored(SIGNED_SPEC)], frozenset(), now=70.0, grace=60.0) == (
        {key: 70.0},
        [],
    )


def test_a_template_that_is_being_deleted_is_not_deleted_again():
    deleted_template = stored(SIGNED_SPEC, deletionTimestamp="2026-01-01T00:00:00Z")
    assert template_lifecycle.sweep({("ns", NAME): 0.0}, [deleted_template], frozenset(), now=1e6, grace=1.0) == (
        {},
        [],
    )
