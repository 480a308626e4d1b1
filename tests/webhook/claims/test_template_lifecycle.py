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


def test_no_template_of_an_unsigned_pod_is_proven():
    assert template_lifecycle.read_proven(signed_pod(NAME), [KEY]) == {}


def test_a_finished_pod_needs_no_template():
    signed = sign({NAME: SIGNED_SPEC})
    assert template_lifecycle.read_proven(signed_pod(NAME, annotation=signed, phase="Succeeded"), [KEY]) == {}
    assert template_lifecycle.templates_of(signed_pod(NAME, phase="Failed")) == frozenset()


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
    assert sweep({}, mismatched, now=0.0)[1] == [mismatched]
    assert sweep({}, mismatched, used={("ns", NAME)}, now=0.0)[1] == []


# A signature proves that the webhook allowed the templates. The controller checks the current rules of the namespace again.


def state(mode="enforce", **fields):
    return State(namespaces={"ns": {"drawbridge.dev/mode": mode}}, **fields)


def objection(mode="enforce", *, pod=None, **fields):
    """Return why no template is created for a pod in this state of the cluster."""
    return template_lifecycle.objection(pod or signed_pod(NAME), [SIGNED_SPEC], state(mode, **fields))


QUOTA, LIMIT_RANGE = frozenset({"requests.nvidia.com/gpu"}), frozenset({"nvidia.com/gpu"})


@pytest.mark.parametrize(
    "fields", [{}, {"quotas": {"other": QUOTA}}, {"limit_ranges": {"ns": frozenset({"cpu"})}}, {"unsure": {"other": ("Namespace",)}}]
)  # fmt: skip
def test_a_template_may_be_created_in_an_enforcing_namespace(fields):
    assert objection(**fields) == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": "off"}, "the mode is off"),
        ({"mode": "observe"}, "the mode is observe"),
        ({"mode": "warn"}, "the mode is warn"),
        ({"pod": signed_pod(NAME, labels={"drawbridge.dev/skip": "true"})}, "skip"),
        ({"quotas": {"ns": QUOTA}}, "requests.nvidia.com/gpu"),
        ({"limit_ranges": {"ns": LIMIT_RANGE}}, "LimitRange limits nvidia.com/gpu"),
        ({"unsure": {"ns": ("Namespace",)}}, "Namespace could not be read"),
        ({"unsure": {"ns": ("ResourceQuota",)}}, "ResourceQuota could not be read"),
        ({"unsure": {"ns": ("LimitRange",)}}, "LimitRange could not be read"),
    ],
)
def test_no_template_is_created_against_the_rules_of_the_namespace(fields, reason):
    assert reason in objection(**fields)


def test_a_mapped_or_charged_quota_blocks_no_template():
    """Claims do not bypass a quota that the configuration maps to a new key, or that Kubernetes charges for the claims."""
    limited = {"quotas": {"ns": QUOTA}}
    mapped = Configuration(msgspec.structs.replace(DEFAULT, quotas={"nvidia.com/gpu": "x"}))
    assert objection(configuration=mapped, **limited) == ""
    device_class = Served(name="gpu.nvidia.com", extended_resource="nvidia.com/gpu")
    limited["fleet"] = Inventory(known=True, classes={"gpu.nvidia.com": device_class})
    for is_on in (True, False):
        features = Features(minor=37, gates={"DRAExtendedResource": is_on})
        assert (objection(features=features, **limited) == "") is is_on


def test_a_canary_percentage_selects_the_same_pods_as_at_admission():
    """At admission, the webhook hashed the prefix of a generated name. A hash of the full name would select other pods."""
    for percent in range(5, 100, 5):
        canary = Configuration(msgspec.structs.replace(DEFAULT, canary=percent))
        is_enforced = mode_of(state(configuration=canary), workload("ns", {"generateName": "train-"})) is Mode.ENFORCE
        stored_pod = signed_pod(NAME, generateName="train-", name="train-x7f2q")
        assert (objection(pod=stored_pod, configuration=canary) == "") is is_enforced


# Conflicts of names


def test_a_template_name_with_equal_content_is_free():
    equal, other = ({("ns", NAME): stored(of).spec.spec} for of in (SIGNED_SPEC, spec(7)))
    for namespace, templates in (("ns", {}), ("ns", equal), ("other", other)):
        assert template_lifecycle.name_conflicts({NAME: SIGNED_SPEC}, namespace, state(templates=templates)) == ()


def test_a_conflict_of_names_reports_the_other_templates_owner():
    templates = {("ns", NAME): stored(spec(7)).spec.spec}
    (problem,) = template_lifecycle.name_conflicts(
        {NAME: SIGNED_SPEC}, "ns", state(templates=templates, template_owners={("ns", NAME): "it belongs to Job x"})
    )
    assert f"ns/{NAME}" in problem
    assert "it belongs to Job x" in problem


def sweep(unused_since, *templates, used=(), now, grace=60.0):
    return template_lifecycle.sweep(unused_since, list(templates), frozenset(used), now=now, grace=grace)


def test_our_unused_templates_are_deleted_after_the_grace_period():
    own_template, foreign_template = stored(SIGNED_SPEC), stored(SIGNED_SPEC, labels={})
    named_by_hand = stored(SIGNED_SPEC, name="drawbridge-by-hand")
    templates = own_template, foreign_template, named_by_hand
    unused_since, expired = sweep({}, *templates, now=100.0)
    assert (unused_since, expired) == ({("ns", NAME): 100.0}, [])
    assert sweep(unused_since, *templates, now=159.0)[1] == []
    assert sweep(unused_since, *templates, now=160.0)[1] == [own_template]


def test_a_used_template_is_no_longer_due_for_deletion():
    key = ("ns", NAME)
    unused_since, _ = sweep({}, stored(SIGNED_SPEC), now=0.0)
    unused_since, _ = sweep(unused_since, stored(SIGNED_SPEC), used={key}, now=50.0)
    assert unused_since == {}
    assert sweep(unused_since, stored(SIGNED_SPEC), now=70.0) == ({key: 70.0}, [])


def test_a_template_that_is_being_deleted_is_not_deleted_again():
    deleted_template = stored(SIGNED_SPEC, deletionTimestamp="2026-01-01T00:00:00Z")
    assert sweep({("ns", NAME): 0.0}, deleted_template, now=1e6) == ({}, [])
