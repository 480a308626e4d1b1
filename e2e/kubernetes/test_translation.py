"""The real API server accepts translated objects and stores them unchanged.

Random pods use the words of all dialects, with a fixed seed, and are dry runs, so that hundreds take seconds. These namespaces did
not opt in, so no webhook is called.
"""

import copy
import json
import random

import pytest

from cluster.patch import apply_json_patch
from e2e.ground.images import BUSYBOX
from webhook.claims import template
from webhook.state import State
from webhook.state.configuration import read_configuration
from webhook.translate.translate import translate

pytestmark = pytest.mark.real

KOORD = "koordinator.sh/"
HAMI_WORDS = {
    "nvidia.com/gpu": (1, 2, 40),
    "nvidia.com/gpumem": (0, 1000, 3000),
    "nvidia.com/gpumem-percentage": (0, 33, 100),
    "nvidia.com/gpucores": (0, 30, 100),
    "nvidia.com/priority": (1,),
    "nvidia.com/mig-1g.5gb.me": (1, 2),
}
KOORD_WORDS = {
    KOORD + "gpu": (50, 100, 200),
    KOORD + "gpu-core": (50, 100),
    KOORD + "gpu-memory": ("1000", "8Gi"),
    KOORD + "gpu-memory-ratio": (50, 100),
    KOORD + "gpu.shared": (1, 2),
    KOORD + "rdma": (1, 100, 200),
}
SELECTOR = {
    "matchLabels": {"room": "b"},
    "matchExpressions": [
        {"key": "type", "operator": "NotIn", "values": ['é"] || true || ["\\', "b"]},
        {"key": "room", "operator": "Exists"},
    ],
}
ANNOTATIONS = {
    "nvidia.com/use-gputype": ("A100, nvidia-l40", 'é"] || true || ["\\'),
    "nvidia.com/nouse-gpuuuid": ("GPU-1",),
    "scheduling.koordinator.sh/device-joint-allocate": (
        json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}),
    ),
    "scheduling.koordinator.sh/device-allocate-hint": (
        json.dumps({"rdma": {"allocateStrategy": "ApplyForAll"}}),
        json.dumps({"rdma": {"vfSelector": {}}}),
        json.dumps({kind: {"selector": SELECTOR} for kind in ("gpu", "rdma")}),
    ),
}
CONFIGURATION, _ = read_configuration(
    {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DrawbridgeConfiguration",
        "meanings": {"nvidia.com/gpu": "whole"},
        "models": [{"product": f"NVIDIA {i}", "memory": f"{i * 8}Gi"} for i in range(1, 12)],
        "koordinator": {
            "wholeNICForShare": True,
            "deviceLabels": {"type": "a.example.com/in", "room": "a.example.com/room"},
        },
        "schedulers": {"mine": {"likeCluster": True}},
    }
)
STATE = State(configuration=CONFIGURATION, keys=(b"key",))


def some(dice: random.Random, words: dict, most: int) -> dict:
    return {key: dice.choice(words[key]) for key in dice.sample(sorted(words), dice.randint(0, most))}


def made_up(dice: random.Random, namespace: str) -> dict:
    words = dice.choice((HAMI_WORDS, KOORD_WORDS))

    def container(name: str, **more) -> dict:
        limits = {key: str(amount) for key, amount in some(dice, words, 3).items()}
        return {"name": name, "image": BUSYBOX, "resources": {"limits": limits}, **more}

    spec: dict = {"containers": [container(f"c{i}") for i in range(dice.randint(1, 3))]}
    spec["initContainers"] = [
        container(f"i{i}", **dice.choice(({}, {"restartPolicy": "Always"}))) for i in range(dice.randint(0, 3))
    ]
    spec["schedulerName"] = dice.choice(("default-scheduler", "hami-scheduler", "koord-scheduler", "mine"))
    metadata = {"name": "made-up", "namespace": namespace, "annotations": some(dice, ANNOTATIONS, 2)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_translated_pods_and_templates_are_accepted_and_stored_unchanged(control_plane, namespace):
    dice, changed, seen = random.Random(20260923), 0, {}
    for _ in range(600):
        pod = made_up(dice, namespace)
        kept = copy.deepcopy(pod)
        done = translate(pod, STATE, namespace=namespace, sign=True)
        assert pod == kept
        if not done.changed:
            continue
        changed += 1
        [stored] = control_plane.create(apply_json_patch(pod, done.operations), dryRun="All")
        record = json.loads(stored["metadata"]["annotations"]["drawbridge.dev/original"])["containers"]
        for container in (*stored["spec"]["containers"], *stored["spec"].get("initContainers", [])):
            assert not container["resources"].get("limits", {}).keys() & record.get(container["name"], {}).keys()
        seen.update(done.templates)
    assert changed > 150
    assert len(seen) > 50
    for name, spec in seen.items():
        [stored] = control_plane.create(template.object_of(name, spec, namespace), dryRun="All")
        assert template.name_of({"spec": stored["spec"]["spec"]}) == name
