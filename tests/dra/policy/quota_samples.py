"""Keys, amounts and scopes of DeviceQuotas, and whether the API server accepts them."""

from tests.objects import device_quota

GOOD_KEYS = (
    "gpu/devices",
    "gpu.nvidia.com/shares",
    "gpu.nvidia.com/memory",
    "gpu/gpu.example.com/cores",
    "*/devices",
    "*/memory",
    "requests.gpu/devices",
    "limits.gpu.nvidia.com/memory",
    "requests.*/devices",
    "requests/devices",
    "mig/profile.1g.10gb+me",
    "mig/counter.memory-slice-0",
)
BAD_KEYS = (
    "gpu",
    "/devices",
    "gpu/",
    "GPU/devices",
    "gpu/*",
    "**/devices",
    "*.com/devices",
    "gpu/a/b/c",
    "gpu/mem ory",
    "gpu/devices\n",
    "gpu./devices",
    "-gpu/devices",
    "gpu/profile.",
    "gpu/counter.A",
    "gpu/1memory",
    "gpü/devices",
    "gpu/spеicher",
    "requests./devices",
    f"{'a' * 321}/devices",
    f"gpu/{'m' * 64}",
    "",
)
GOOD_AMOUNTS = (0, 1, "0", "8", "80Gi", "1500M", "9E")
BAD_AMOUNTS = (-1, "-1", "-1Gi", "much", "", "1" * 65)


def scope(operator, *values, name="PriorityClass"):
    return {"scopeName": name, "operator": operator} | ({"values": list(values)} if values else {})


GOOD_SCOPES = (scope("In", "high"), scope("NotIn", "low", "high"), scope("Exists"), scope("DoesNotExist"))
BAD_SCOPES = (
    scope("In"),
    scope("NotIn"),
    scope("Exists", "high"),
    scope("Near", "high"),
    scope("In", "high", name="BestEffort"),
)


def scoped_quota(hard, *scopes, name="q", namespace="team"):
    selector = {"scopeSelector": {"matchExpressions": list(scopes)}} if scopes else {}
    return device_quota(name, hard, namespace, **selector)


def cases():
    """Return pairs of a quota and whether the API server accepts it."""
    samples = [(scoped_quota({key: 1}), True) for key in GOOD_KEYS] + [
        (scoped_quota({key: 1}), False) for key in BAD_KEYS
    ]
    samples += [(scoped_quota({"gpu/memory": amount}), True) for amount in GOOD_AMOUNTS]
    samples += [(scoped_quota({"gpu/memory": amount}), False) for amount in BAD_AMOUNTS]
    samples += [(scoped_quota({"gpu/devices": 1}, scope), True) for scope in GOOD_SCOPES]
    samples += [(scoped_quota({"gpu/devices": 1}, scope), False) for scope in BAD_SCOPES]
    samples += [
        (scoped_quota({}), False),
        (scoped_quota({f"c{index}/devices": 1 for index in range(64)}), True),
        (scoped_quota({f"c{index}/devices": 1 for index in range(65)}), False),
    ]
    return samples
