"""The policy that adds the finalizer to claims of pods at their creation: off by default, and harmless if it fails."""

from allocator.reservations import FINALIZER
from analysis.installation import BASE
from tests.test_installation_guards import printed

FOLDER = BASE.parent / "protected-claims"


def test_the_policy_is_printed_on_request_and_has_no_namespace():
    plain, enabled = printed(), printed("--protected-claims", "--namespace", "elsewhere")
    added = {key: obj for key, obj in enabled.items() if key not in plain}
    name = "drawbridge-protected-claims"
    policy, binding = (added.pop((f"MutatingAdmissionPolicy{what}", name)) for what in ("", "Binding"))
    assert not {key for key in added if "protected" in key[1]}
    assert binding["spec"]["policyName"] == name
    assert "namespace" not in policy["metadata"] | binding["metadata"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    [mutation] = policy["spec"]["mutations"]
    assert FINALIZER in mutation["applyConfiguration"]["expression"]
