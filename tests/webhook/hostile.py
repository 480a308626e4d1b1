"""Hostile reviews, made to take much time or memory. They have at most 3 MiB, so an API server would send them.

The reviews are generated, because files of them would take megabytes. To add a review, add an entry to one of the tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.corpus.hostile_pods import PODS
from tests.objects import admission_review, claim, container, device_class, exactly, pod

Json = dict[str, Any]
GPU = {"nvidia.com/gpu": "1"}


def crowded_pod(
    *, limits: Json = GPU, containers: int = 1, init: int = 0, annotations: Json | None = None, **spec: Any
) -> Json:
    """Return a pod with `containers` containers and `init` init containers, all with the same limits."""
    crowded = [container(f"c{i}", limits) for i in range(containers)]
    init_fields = {"initContainers": [container(f"i{i}", limits) for i in range(init)]} if init else {}
    return pod(containers=crowded, annotations=annotations, **init_fields, **spec)


def review(obj: Json | str, *, operation: str = "CREATE", old: Json | None = None, kind: str = "pods") -> bytes:
    """Make the review of an object; a str is used as JSON unchanged."""
    group, resource = ("resource.k8s.io", kind.rpartition("/")[2]) if kind.startswith("resource") else ("", kind)
    request = {
        "uid": "hostile",
        "kind": {"group": group, "version": "v1", "kind": "Pod" if kind == "pods" else "ResourceClaim"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "namespace": "default",
        "name": "p",
    }
    body = "OBJECT" if isinstance(obj, str) else obj
    text = json.dumps(admission_review(body, operation=operation, oldObject=old, **request))
    return (text.replace('"OBJECT"', obj) if isinstance(obj, str) else text).encode()


def selecting_claim(*expressions: str, requests: int = 1, count: int = 1) -> Json:
    """Return a claim with these selectors in each of its requests."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    device_requests = [
        exactly("gpu.nvidia.com", name=f"r{i}", count=count, selectors=selectors) for i in range(requests)
    ]
    return claim("c", *device_requests)


def _device_class(pattern: str) -> bytes:
    """Return the review of a class whose selector has this pattern."""
    selecting = device_class("c", f"device.driver.matches('{pattern}')")
    return review(selecting, kind="resource.k8s.io/deviceclasses")


def _deep(levels: int) -> str:
    """Return the JSON of an empty list inside lists, with this number of levels."""
    return "[" * levels + "]" * levels


def _twice() -> str:
    """Return the JSON of a pod in which many fields occur more than once. JSON decoders differ in which value they use."""
    limits = '{"nvidia.com/gpu":"1","nvidia.com/gpu":"8","nvidia.com/gpu":[[]]}'
    container = f'{{"name":"a","name":"b","resources":{{"limits":{{}},"limits":{limits}}}}}'
    metadata = '{"name":"p","name":"q","annotations":{"drawbridge.dev/original":"{}","drawbridge.dev/original":"[]"}}'
    return f'{{"kind":"Pod","metadata":{{}},"metadata":{metadata},"spec":{{"containers":[{container}],"containers":[{container}]}}}}'


def _numbers(digits: int) -> str:
    """Return the JSON of a pod with long numbers, in fields for numbers and in fields for strings."""
    nines = "9" * digits
    limits = f'{{"nvidia.com/gpu":{nines},"nvidia.com/gpumem":1e{nines[:4]},"nvidia.com/gpucores":-{nines}}}'
    container = f'{{"name":{nines},"resources":{{"limits":{limits},"requests":{limits}}}}}'
    return f'{{"metadata":{{"name":{nines},"labels":{{"a":{nines}}}}},"spec":{{"priority":{nines},"containers":[{container}]}}}}'


def _raw(text: str, invalid_bytes: bytes) -> bytes:
    """Return a review in which these bytes, which no JSON encoder writes, replace each `ODD`."""
    return review(text).replace(b"ODD", invalid_bytes)


# A pod with places for odd characters: a test replaces each `ODD`.
ODD_POD = '{"metadata":{"name":"ODD","annotations":{"nvidia.com/use-gputype":"ODD"}},"spec":{"containers":[{"name":"ODD","resources":{"limits":{"nvidia.com/gpu":"1","nvidia.com/ODD":"ODD"}}}]}}'
ZEROS = "0" * 9_000
COSTLY = "device.driver.matches('^(a?){40}a{40}$') || [1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, [1,2,3,4,5,6,7,8,9].all(z, x + y + z > 0)))"

# RE2 compiles a pattern in one call that cannot be interrupted. Repetitions make the call long.
SLOW_PATTERNS = ("(a{0,1000}){0,1}" * 300, r"\\pL" * 2_000, "(((a{1,10}){1,10}){1,10})" * 300, r"(\\pL{1,100})")

# Pods of hostile reviews, as objects or as JSON.
PODS_OF_REVIEWS: dict[str, Callable[[], Json | str]] = {
    "5,000 init containers": lambda: crowded_pod(init=5_000),
    "5,000 containers": lambda: crowded_pod(containers=5_000),
    "8,000 MIG keys": lambda: crowded_pod(limits={f"nvidia.com/mig-{i % 7 + 1}g.{i}gb": "1" for i in range(8_000)}),
    "260 KiB of use-gputype, 1,000 containers": lambda: crowded_pod(
        limits=GPU | {"nvidia.com/gpumem": "3000"}, containers=1_000, annotations={"nvidia.com/use-gputype": ",".join(f"A{i}" for i in range(40_000))}
    ),
    "a quantity of 4,000 digits": lambda: crowded_pod(limits={"nvidia.com/gpu": "9" * 4_000 + "e4000"}),
    "a quantity of a million digits": lambda: crowded_pod(limits={"nvidia.com/gpu": "0" * 1_000_000}),
    "999 claims with our names": lambda: crowded_pod(resourceClaims=[{"name": f"drawbridge-c0-gpu-{i}", "resourceClaimName": "x"} for i in range(999)]),
    "deep JSON in an annotation of ours": lambda: crowded_pod(annotations={"drawbridge.dev/original": _deep(100_000), "drawbridge.dev/templates": _deep(9_000)}),
    "deep JSON in a Koordinator annotation": lambda: crowded_pod(
        limits={"koordinator.sh/gpu": "100"}, annotations={"scheduling.koordinator.sh/device-allocate-hint": _deep(100_000)}
    ),
    "a million empty containers": lambda: '{"metadata":{"annotations":{"drawbridge.dev/devices":"x"}},"spec":{"containers":[' + "{}," * 1_000_000 + "{}]}}",
    "a deep object": lambda: '{"spec":' + _deep(500_000) + "}",
    "2,000 init containers with claims": lambda: crowded_pod(init=2_000, resourceClaims=[{"name": f"c{i}", "resourceClaimTemplateName": f"t{i}"} for i in range(2_000)]),
    "each field twice": _twice,
    "numbers of 4,000 digits": lambda: _numbers(4_000),
    "numbers of 300,000 digits": lambda: _numbers(300_000),
    "keys of characters that become longer when normalised": lambda: crowded_pod(
        limits=GPU | {f"nvidia.com/{chr(0xFDFA) * 500}{i}": "1" for i in range(300)}, annotations={"e" + "\u0301" * 200_000: "x"}
    ),
    "keys written as escapes": lambda: ODD_POD.replace("nvidia.com/gpu", "".join(f"\\u{ord(letter):04x}" for letter in "nvidia.com/gpu")).replace("ODD", "\\u0061" * 100_000),
    "9,000 values nested 90 deep": lambda: (
        '{"metadata":{"annotations":{}},"spec":{"containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}},"env":[' + ",".join([_deep(90)] * 9_000) + "]}]}}"
    ),
    "3 MiB of labels": lambda: crowded_pod(annotations={f"a/{i}": "x" * 60 for i in range(36_000)}),
}  # fmt: skip

# Claims of hostile reviews.
CLAIMS_OF_REVIEWS: dict[str, Callable[[], Json | str]] = {
    "isQuantity of 9,000 zeros": lambda: selecting_claim(f"isQuantity('{ZEROS}x')"),
    "32 costly selectors": lambda: selecting_claim(*([COSTLY] * 32)),
    "91 KB of selectors": lambda: selecting_claim(*([COSTLY] * 32), requests=16),
    "32 requests for 32 devices": lambda: selecting_claim("device.driver != 'x'", requests=32, count=32),
    "a list of a million numbers": lambda: selecting_claim("lists.range(999900).size() > 0"),
    "32 lists of a million numbers": lambda: selecting_claim(*[f"lists.range({999_900 - i}).reverse()[0] != {i}" for i in range(32)]),
    **{f"a pattern that takes one call of half a second: {text[:12]}": lambda text=text: selecting_claim(f"device.driver.matches('{text}')") for text in SLOW_PATTERNS},
    "a search that takes one call of 100 ms": lambda: selecting_claim(f"'{'x' * 6_000}'.matches('(x|b)*x(x|b){{900}}y')"),
    "3,000 requests for the same devices": lambda: selecting_claim("device.driver != 'x'", requests=3_000, count=2**53),
    "a claim nested 900 deep": lambda: json.dumps(selecting_claim("true")).replace('"count": 1', f'"count": 1, "unknown": {_deep(900)}'),
}  # fmt: skip

# Hostile updates of pods, the operation of an unknown name, and invalid bytes.
OTHER_REVIEWS: dict[str, Callable[[], bytes]] = {
    "zeros in an update's record": lambda: review(
        crowded_pod(annotations={"drawbridge.dev/original": json.dumps({"containers": {"c0": {"nvidia.com/gpu": ZEROS}}})}),
        operation="UPDATE",
        old=crowded_pod(annotations={"drawbridge.dev/original": "{}"}),
    ),
    "a record of 1 MiB in both objects of an update": lambda: review(
        crowded_pod(annotations={"drawbridge.dev/original": "x" * 2**20, "drawbridge.dev/decision": "{" * 2**20}),
        operation="UPDATE",
        old=crowded_pod(annotations={"drawbridge.dev/original": "{}" * 2**19}),
    ),
    "an update without the old object": lambda: review(crowded_pod(containers=1_000), operation="UPDATE"),
    "an operation of two thousand letters": lambda: review(crowded_pod(), operation="CREATE" * 333),
    "bytes that are not UTF-8": lambda: _raw(ODD_POD, b"\xff\xfe\xc0\x80"),
    "half a surrogate pair": lambda: _raw(ODD_POD, rb"\ud800"),
    "characters that end lines": lambda: _raw(ODD_POD, rb"\u2028\r\n\u0000\u001b[31m"),
}  # fmt: skip

# The path of each review and the function that makes it, by a description of the attack.
REVIEWS: dict[str, tuple[str, Callable[[], bytes]]] = {
    **{name: ("mutate", lambda make=make: review(make())) for name, make in PODS_OF_REVIEWS.items()},
    **{name: ("mutate", make) for name, make in OTHER_REVIEWS.items()},
    **{name: ("validate", lambda make=make: review(make(), kind="resourceclaims")) for name, make in CLAIMS_OF_REVIEWS.items()},
    "a pattern of half a second in a class": ("validate", lambda: _device_class(SLOW_PATTERNS[2])),
}  # fmt: skip
CORPUS = {name.replace("_", " "): ("mutate", lambda make=make: review(make())) for name, make in PODS.items()}
