"""The policy that adds the finalizer to claims of pods at their creation: off by default, and harmless if it fails."""

from allocator.reservations import FINALIZER
from tests.test_installation_guards import printed_objects


def test_the_policy_is_printed_on_request_and_has_no_namespace():
    default_objects, enabled = printed_objects(), printed_objects(protectedClaims=True, namespace="elsewhere")
    added = {key: obj for key, obj in enabled.items() if key not in default_objects}
    name = "drawbridge-protected-claims"
    policy, binding = (added.pop((f"MutatingAdmissionPolicy{suffix}", name)) for suffix in ("", "Binding"))
    assert not {key for key in added if "protected" in key[1]}
    assert binding["spec"]["policyName"] == name
    assert "namespace" not in policy["metadata"] | binding["metadata"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    [mutation] = policy["spec"]["mutations"]
    assert FINALIZER in mutation["applyConfiguration"]["expression"]
