"""For a waiting pod, `explain` shows only the faults of the component of drawbridge that the pod waits for."""

import pytest
from msgspec.structs import replace

from analysis.broken_parts import waits_for_component
from analysis.explain import pod_story, with_cause
from analysis.loading import reading_of
from dra.finding import make_finding
from tests.cli.explain.scenes import claim, fleet, held_claim, pod
from webhook.state import Features

INSTALLATION = "drawbridge-system/drawbridge"
FAULTS = {
    name: make_finding("O009", name, "it is away", "bring it back")
    for name in (
        "ValidatingWebhookConfiguration/drawbridge",
        f"Deployment/{INSTALLATION}-read-only",
        "MutatingWebhookConfiguration/drawbridge",
        f"Secret/{INSTALLATION}",
        f"Deployment/{INSTALLATION}-webhook",
        f"Lease/{INSTALLATION}-allocator",
        f"Deployment/{INSTALLATION}-allocator",
        f"Lease/{INSTALLATION}",
        f"Role/{INSTALLATION}-controller",
        "DaemonSet/drawbridge-driver/drawbridge-driver",
    )
}
CLAIM_ENTRY = {"name": "gpu", "resourceClaimTemplateName": "drawbridge-59e6bd4f61fd23bcce6ea7c00bdb2789"}


def with_signed_template(pod_):
    """Return the pod with an annotation that the webhook writes about the claim template of a pod."""
    pod_["metadata"]["annotations"] = {
        "drawbridge.dev/templates": f'v2 x {{"{CLAIM_ENTRY["resourceClaimTemplateName"]}":{{}}}}'
    }
    return pod_


# Pods, and the objects of the components that they wait for, in the order of the findings of `drawbridge doctor`.
# The bridge is the component that allocates devices.
PODS_AND_COMPONENTS = {
    "waits for the template controller": (
        with_signed_template(pod("p", resourceClaims=[CLAIM_ENTRY])),
        [f"Lease/{INSTALLATION}", f"Role/{INSTALLATION}-controller"],
    ),
    "waits for the bridge": (
        pod("p", "c"),
        [f"Lease/{INSTALLATION}-allocator", f"Deployment/{INSTALLATION}-allocator"],
    ),
    "waits for the driver": (pod("p", "held", nodeName="n0"), ["DaemonSet/drawbridge-driver/drawbridge-driver"]),
    "waits for a missing claim": (pod("p", "lost"), []),
    "waits for another scheduler": (pod("p", "c", schedulerName="default-scheduler"), []),
    "runs on a node": (pod("p", "c", nodeName="n0") | {"status": {"phase": "Running"}}, []),
}


@pytest.mark.parametrize("case", PODS_AND_COMPONENTS)
def test_explain_shows_faults_of_the_components_a_pod_waits_for(case):
    waiting_pod, components = PODS_AND_COMPONENTS[case]
    reading = reading_of([*fleet(1, 1), claim("c"), held_claim("held", "p"), waiting_pod], Features())
    story = pod_story("default/p", reading)
    assert waits_for_component(story.state.reasons[0]) == bool(components)
    message = story.state.reasons[0].text
    assert with_cause(story, []) == story
    # O010 is about a component that still runs, with only some of its replicas.
    assert with_cause(story, [replace(finding, code="O010") for finding in FAULTS.values()]) == story
    remaining_faults = dict(FAULTS)
    for component in components:
        story_with_fault = with_cause(story, remaining_faults.values())
        cause, reason = story_with_fault.state.reasons
        assert (cause.text, cause.remedies) == (f"{component}: it is away", ("bring it back",))
        assert reason.text == message
        del remaining_faults[component]
    assert with_cause(story, remaining_faults.values()) == story
