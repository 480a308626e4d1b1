"""`explain` shows the fault of the component of drawbridge that a pod waits for, and no other fault."""

import pytest
from msgspec.structs import replace

from analysis.explain import actor_of, pod_story, with_cause
from analysis.loading import reading_of
from dra.finding import make_finding
from tests.cli.explain.scenes import claim, fleet, held, pod
from webhook.state import Configuration, Features

AT = "drawbridge-system/drawbridge"
WRONG = {
    name: make_finding("O009", name, "it is away", "bring it back")
    for name in (
        "ValidatingWebhookConfiguration/drawbridge-quota",
        f"Deployment/{AT}-read-only",
        "MutatingWebhookConfiguration/drawbridge",
        f"Secret/{AT}",
        f"Deployment/{AT}-webhook",
        f"Lease/{AT}-allocator",
        f"Deployment/{AT}-allocator",
        f"Lease/{AT}",
        f"Role/{AT}-controller",
        "DaemonSet/drawbridge-driver/drawbridge-driver",
    )
}
OURS = {"name": "gpu", "resourceClaimTemplateName": "drawbridge-59e6bd4f61fd23bcce6ea7c00bdb2789"}


def signed(obj):
    """Return the pod with the webhook's annotation about the template that the pod uses."""
    obj["metadata"]["annotations"] = {
        "drawbridge.dev/templates": f'v2 x {{"{OURS["resourceClaimTemplateName"]}":{{}}}}'
    }
    return obj


WAITING = {
    "a template": (signed(pod("p", resourceClaims=[OURS])), [f"Lease/{AT}", f"Role/{AT}-controller"]),
    "the bridge": (pod("p", "c"), [f"Lease/{AT}-allocator", f"Deployment/{AT}-allocator"]),
    "its driver": (pod("p", "held", nodeName="n0"), ["DaemonSet/drawbridge-driver/drawbridge-driver"]),
    "a claim of its own": (pod("p", "lost"), []),
    "another scheduler": (pod("p", "c", schedulerName="default-scheduler"), []),
    "a node": (pod("p", "c", nodeName="n0") | {"status": {"phase": "Running"}}, []),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_fault_of_a_component_comes_before_the_pods_wait(name):
    waiting, parts = WAITING[name]
    story = pod_story(
        "default/p", reading_of([*fleet(1, 1), claim("c"), held("held", "p"), waiting], Features()), Configuration()
    )
    assert bool(actor_of(story)) == bool(parts)
    before = story.next_step.message
    assert with_cause(story, []) == story
    assert with_cause(story, [replace(finding, code="O010") for finding in WRONG.values()]) == story
    left = dict(WRONG)
    for part in parts:  # in the order of doctor's findings
        assert with_cause(story, left.values()).next_step.message == f"{part}: it is away (bring it back); {before}"
        del left[part]
    assert with_cause(story, left.values()) == story
