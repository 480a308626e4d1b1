"""A pod whose fields may be secret, and the text that no snapshot may contain."""

from tests.objects import container, pod

SECRET = "hunter2"
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}


def pod_with(name="p", **fields):
    """A pod whose container has these fields."""
    return pod(name, namespace="team-a", containers=[container(limits=LIMITS) | fields])
