"""Custom resources that request GPUs outside of a pod template."""

from tests.webhook.admission.test_verdict import GPU, STATE
from webhook.admission import decide_object

ONE_GPU = {"limits": {"cpu": "4", GPU: 1}, "requests": {"cpu": "4", GPU: 1}}


def custom_resource(version, kind, spec, **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "o", **metadata}, "spec": spec}


def outcomes_of(item, state=STATE, **options):
    """Return the outcome of each decision by the path or name of the container, and the key."""
    return {
        (decision.container, decision.key): str(decision.outcome)
        for decision in decide_object(item, state, **options).decisions
    }
