"""The policy by which claims of pods have their finalizer from the beginning: off unless it is named, and harmless where it fails."""

from allocator.reservations import FINALIZER
from analysis.installation import BASE
from tests.test_installation_guards import printed

FOLDER = BASE.parent / "protected-claims"


def test_it_is_there_where_it_is_asked_for_and_in_no_namespace():
    plain, asked = printed(), printed("--protected-claims", "--namespace", "elsewhere")
    added = {key: one for key, one in asked.items() if key not in plain}
    name = "drawbridge-protected-claims"
    policy, binding = (added.pop((f"MutatingAdmissionPolicy{what}", name)) for what in ("", "Binding"))
    assert not {key for key in added if "protected" in key[1]}
    assert binding["spec"]["policyName"] == name
    assert "namespace" not in policy["metadata"] | binding["metadata"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    [mutation] = policy["spec"]["mutations"]
    assert FINALIZER in mutation["applyConfiguration"]["expression"]
