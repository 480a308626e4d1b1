"""Custom resources that request GPUs outside of a pod template."""

from tests.webhook.admission.test_verdict import GPU, STATE
from webhook.admission import decide_object

ONE = {"limits": {"cpu": "4", GPU: 1}, "requests": {"cpu": "4", GPU: 1}}


def obj(version, kind, spec, **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "o", **metadata}, "spec": spec}


def outcomes_of(item, world=STATE, **more):
    return {
        (decision.container, decision.key): str(decision.outcome)
        for decision in decide_object(item, world, **more).decisions
    }
