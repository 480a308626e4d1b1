"""The webhook's caches (compiled selectors, claims of a request, facts about a fleet) never change an answer.

One webhook decides each random review twice, while it follows a changing cluster. A second webhook, which is started for each review with
empty caches and reads the cluster anew, decides the review once more. The answers and the logged records are equal.
"""

import base64
import json
import random
import sys
from functools import _lru_cache_wrapper

import jsonpatch
import pytest

from allocator import FleetMemo
from allocator.problem.attributes import PageCache
from allocator.problem.cache import CompileCache
from cluster import manifests, resources
from dra import wire
from dra.cache import Cache
from dra.objects import DeviceClass, Node, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from tests.draws import draws
from tests.webhook.admission.reviews import review
from tests.webhook.pods import CLAIMED, EXAMPLES, WHOLE, configured
from webhook import names
from webhook.service.decider import ReviewDecider
from webhook.state import StateBuilder

CLAIMS = 16  # claims that are created and deleted
KEYS = b"k" * 32, b"o" * 32
PATIENCE = 60.0
PACKAGES = ("allocator", "cluster", "dra", "runtime", "webhook")
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
LIMITS = (
    {},
    {"cpu": "1"},
    {GPU: "1"},
    {GPU: "2"},
    {GPU: "99"},
    {GPU: "1.5"},
    {GPU: 1, "cpu": "2"},
    {GPU: "1", MEMORY: "3000", CORES: "30"},
    {GPU: "1", "nvidia.com/gpumem-percentage": "50"},
    {GPU: "1", "nvidia.com/gpumen": "5"},
    {"nvidia.com/mig-1g.10gb": "1"},
    {"nvidia.com/mig-1g.5gb": "1"},
    {"amd.com/gpu": "1"},
    {"koordinator.sh/gpu": "50"},
    {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"},
)
NAMESPACES = {"ns": {}, "other": {}, "warned": {names.MODE_LABEL: "warn"}, "off": {names.MODE_LABEL: "off"}}
CLASS = "gpu.nvidia.com"
# The content of a foreign template with a name of ours.
ANOTHER = {"spec": {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": CLASS}}]}}}


def fleet():
    """The objects of the example fleet, by kind and name."""
    objects = {}
    for document in manifests.read([EXAMPLES / "fleet"]):
        resource = resources.resource_of(document.object)
        if resource is not None:
            obj = wire.convert(document.object, resource.type)
            objects[type(obj).__name__, obj.metadata.namespace, obj.metadata.name] = obj
    for name, labels in NAMESPACES.items():
        obj = wire.convert({"metadata": {"name": name, "labels": labels}}, resources.NAMESPACES.type)
        objects["Namespace", "", name] = obj
    return objects


FLEET = fleet()
SLICES = tuple(key for key in FLEET if key[0] == "ResourceSlice")


class World:
    """A cluster that changes: its objects, and the builder of a webhook that follows it."""

    def __init__(self, chance, configuration):
        self.chance, self.configuration = chance, configuration
        self.keys = KEYS[:1]
        # A part of the fleet, so small that one claim or one node matters.
        away = chance.choice([(), SLICES, SLICES[1:], SLICES[:-1]])
        self.objects = {key: obj for key, obj in FLEET.items() if key not in away or chance.random() < 0.3}
        self.fresh = True
        self.followed = self.read()

    def read(self):
        """Return what a freshly started webhook reads."""
        builder = StateBuilder(self.configuration, keys=self.keys)
        builder.update_objects(list(self.objects.values()))
        builder.settle()
        return builder

    def state(self, builder):
        builder.refresh()
        return builder.state(fresh=self.fresh)

    def put(self, obj):
        self.objects[type(obj).__name__, obj.metadata.namespace, obj.metadata.name] = obj
        self.followed.update_objects([obj])

    def drop(self, key):
        if key in self.objects:
            self.followed.update_objects([], [self.objects.pop(key)])

    def change(self, template):
        """Change the cluster at random; `template` is the name of a pod's template."""
        chance = self.chance
        match chance.randrange(12):
            case 0 | 8 | 9:
                self.put(self.claim())
            case 1:
                self.drop(("ResourceClaim", "ns", f"c{chance.randrange(CLAIMS)}"))
            case 10:
                self.put(self.another_class())
            case 2 | 3:
                key = chance.choice([key for key in FLEET if key[0] in ("DeviceClass", "Node", "ResourceSlice")])
                if key in self.objects:
                    self.drop(key)
                else:
                    self.put(FLEET[key])
            case 4:
                self.keys = chance.choice([KEYS[:1], KEYS, KEYS[::-1]])
                self.followed.learn(keys=self.keys)
            case 5 if template:
                metadata = {"name": template, "namespace": "ns"}
                self.put(wire.convert({"metadata": metadata, "spec": ANOTHER}, ResourceClaimTemplate))
            case 6 if template:
                self.drop(("ResourceClaimTemplate", "ns", template))
            case 7:
                self.fresh = not self.fresh
            case _:
                node = chance.choice([obj for obj in self.objects.values() if isinstance(obj, Node)])
                plain = {"metadata": {"name": node.metadata.name}, "spec": {"unschedulable": chance.random() < 0.5}}
                self.put(wire.convert(plain, Node))

    def another_class(self):
        """Return a class with other selectors: none, or one that selects no device or some."""
        key = self.chance.choice([key for key in FLEET if key[0] == "DeviceClass"])
        expression = self.chance.choice(["false", "device.driver != ''", "!device.allowMultipleAllocations"])
        selectors = self.chance.choice([[], [{"cel": {"expression": expression}}]])
        return wire.convert({"metadata": {"name": key[2]}, "spec": {"selectors": selectors}}, DeviceClass)

    def claim(self):
        """A claim that holds a device, or none."""
        chance = self.chance
        slices = [obj.spec for obj in self.objects.values() if isinstance(obj, ResourceSlice) and obj.spec.devices]
        status = {}
        if slices and chance.random() < 0.85:
            slice_ = chance.choice(slices)
            device = chance.choice(slice_.devices).name
            result = {"request": "r", "driver": slice_.driver, "pool": slice_.pool.name, "device": device}
            status = {"allocation": {"devices": {"results": [result]}}}
        metadata = {"name": f"c{chance.randrange(CLAIMS)}", "namespace": "ns"}
        requests = [{"name": "r", "exactly": {"deviceClassName": CLASS}}]
        return wire.convert(
            {"metadata": metadata, "spec": {"devices": {"requests": requests}}, "status": status}, ResourceClaim
        )


class Authors:
    """Draws reviews of new pods, forged pods, earlier pods, and pods that the webhook has changed."""

    def __init__(self, chance):
        self.chance = chance
        self.earlier = []  # the pods that were sent
        self.answered = []  # the changed pod, and its namespace
        self.template = ""  # the latest template of a pod

    def request(self):
        """The arguments of the next review."""
        chance = self.chance
        if self.earlier and chance.random() < 0.4:  # a pod equal to an earlier one, as controllers create them
            again = dict(chance.choice(self.earlier[-4:]))
            if chance.random() < 0.3:
                again["dryRun"] = not again["dryRun"]
            if chance.random() < 0.3:
                renamed = again["obj"]["metadata"] | {"name": f"p{chance.randrange(3)}"}
                again["obj"] = again["obj"] | {"metadata": renamed}
            return again
        namespace = chance.choice(["ns", "ns", "ns", *NAMESPACES])
        made = {
            "obj": self.pod(),
            "namespace": namespace,
            "dryRun": chance.random() < 0.2,
            "userInfo": {"username": chance.choice(["", "alice", "system:serviceaccount:kube-system:replicaset"])},
        }
        if self.answered and chance.random() < 0.25:  # a pod that another webhook has changed, or an update
            made["obj"], made["namespace"] = chance.choice(self.answered)
            if chance.random() < 0.5:
                made |= {"operation": "UPDATE", "old": made["obj"], "obj": self.applied_again(made["obj"])}
        if chance.random() < 0.05:
            made |= chance.choice([{"sub": "status"}, {"operation": "DELETE"}, {"resource": "deployments"}])
        self.earlier.append(made)
        return made

    def applied_again(self, pod):
        """Return a translated pod with the keys of its manifest added again."""
        changed = json.loads(json.dumps(pod))
        changed["spec"]["containers"][0].setdefault("resources", {})["limits"] = dict(self.chance.choice(LIMITS))
        return changed

    def pod(self):
        chance = self.chance
        containers = [self.container(f"c{i}") for i in range(chance.choice([1, 1, 1, 2]))]
        spec = {"containers": containers, "schedulerName": "default-scheduler"}
        if chance.random() < 0.15:
            spec["initContainers"] = [self.container("i")]
        if chance.random() < 0.1:
            spec["serviceAccountName"] = "trainer"
        if chance.random() < 0.1:
            named = chance.choice([{"resourceClaimName": "c1"}, {"resourceClaimTemplateName": self.template or "t"}])
            spec["resourceClaims"] = [{"name": "mine", **named}]
        if chance.random() < 0.1:
            spec |= chance.choice(
                [{"nodeName": "train-1"}, {"nodeSelector": {"nvidia.com/gpu.product": "A100-SHARED"}}]
            )
        metadata = {"labels": self.labels()} if chance.random() < 0.5 else {}
        metadata |= {"annotations": self.annotations()} if chance.random() < 0.5 else {}
        metadata |= chance.choice([{"name": f"p{chance.randrange(3)}"}, {"generateName": "p-"}])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def container(self, name):
        limits = dict(self.chance.choice(LIMITS))
        env = [{"name": "A", "value": str(self.chance.randrange(3))}]
        return {"name": name, "image": "x", "resources": {"limits": limits, "requests": dict(limits)}, "env": env}

    def labels(self):
        words = {
            names.SKIP_LABEL: ["true", "yes"],
            names.TRANSLATED_LABEL: ["true"],
            names.WAITS_LABEL: ["true", "false"],
            "kueue.x-k8s.io/queue-name": ["q"],
            "app": ["a", "b"],
        }
        return self.some(words)

    def annotations(self):
        """Some of our annotations, real or forged, of this pod or of another, and some of other owners."""
        words = {
            names.ORIGINAL: ["{}", '{"containers":{"c0":{"nvidia.com/gpu":"1"}}}', "x"],
            names.TEMPLATES: ["v2 00 {}", "v1 x", "", "no words", "v2"],
            names.DECISION: ["[]"],
            names.DEVICES: ["{}"],
            "nvidia.com/use-gputype": ["A100", "L40S"],
            "note": ["x", "y" * 3000],
        }
        chosen = self.some(words)
        if self.answered and self.chance.random() < 0.5:
            real, _ = self.chance.choice(self.answered)
            chosen |= self.some({key: [value] for key, value in real["metadata"].get("annotations", {}).items()})
        return chosen

    def some(self, words):
        return {key: self.chance.choice(values) for key, values in words.items() if self.chance.random() < 0.3}

    def take(self, request, outcome):
        """Record the outcome for a pod."""
        patch = json.loads(outcome.body)["response"].get("patch")
        if patch:
            pod = jsonpatch.apply_patch(request["obj"], json.loads(base64.b64decode(patch)))
            self.answered.append((pod, request["namespace"]))
        if outcome.record.templates:
            self.template = outcome.record.templates[0]


def caches():
    """Return all caches of the product's modules, by name. Caches of objects end with the objects."""
    by_name = {}
    for name, module in sys.modules.items():
        if name.partition(".")[0] in PACKAGES:
            for its, value in vars(module).items():
                if isinstance(value, Cache | _lru_cache_wrapper):
                    by_name[f"{name}.{its}"] = value
    return by_name


def forget_everything():
    """Clear all caches of the process."""
    for cache in caches().values():
        cache.clear() if isinstance(cache, Cache) else cache.cache_clear()


def webhook():
    return ReviewDecider(None, None)


GPU_CONTAINER = {"name": "c0", "resources": {"limits": {GPU: "1"}}}
CONFIGURATIONS = {
    "plain": {},
    "declared": WHOLE,
    "partial roll-out": {"canary": 50},
    "mixed fleet": {"mixed": {GPU: {"prefer": "dra"}}},
    "bridge": {"bridge": {"schedulerName": "ours", "drivers": ["hami-core-gpu.project-hami.io"], "fence": True}},
}


def differing(seed, count, configuration):
    """Return the differences to the answers of a freshly started webhook, as request, answer, and fresh answer."""
    chance = random.Random(seed)
    world, authors, decider = World(chance, configured(**configuration)), Authors(chance), webhook()
    wrong = []
    for number in range(count):
        for _ in range(chance.randrange(3)):
            world.change(authors.template)
        request = authors.request()
        path = "validate" if chance.random() < 0.1 else "mutate"
        now = world.state(world.followed)
        bodies = [review(request["obj"], **_rest(request), uid=f"uid-{number}-{turn}") for turn in range(2)]
        answers = [_attempt(decider, path, body, now) for body in bodies]
        forget_everything()
        for body, given in zip(bodies, answers, strict=True):
            anew = _attempt(webhook(), path, body, world.state(world.read()))
            if given != anew:
                wrong.append((request, given, anew))
        if not isinstance(anew, tuple | str):
            authors.take(request, anew)
    return wrong


def _rest(request):
    return {key: value for key, value in request.items() if key != "obj"}


def _attempt(decider, path, body, state):
    try:
        return decider.decide(path, body, state, PATIENCE)
    except Exception as error:  # noqa: BLE001  it is compared: a review that cannot be read is refused, anything else is a 500
        return repr(error)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_caches_change_no_answer(name):
    wrong = differing(name, draws(100), CONFIGURATIONS[name])
    assert not wrong, (len(wrong), wrong[0])


def test_the_caches_are_found_and_all_of_them_are_cleared():
    """The names are a sample with one cache of each sort."""
    by_name = caches()
    assert by_name.keys() >= {
        "webhook.claims.maker.claim_maker",
        "webhook.claims.maker._TEMPLATES_BY_TEXT",
        "webhook.claims.device_selectors._WRITTEN",
        "webhook.claims.template_lifecycle._read",
        "dra.cel.selector._COMPILED",
        "dra.quantity._cached_parse",
    }
    differing("some", 10, WHOLE)
    forget_everything()
    assert not [
        name
        for name, value in by_name.items()
        if (len(value) if isinstance(value, Cache) else value.cache_info().currsize)
    ]


def fails_once(error, kept, into):
    """Return a method of a memo that fails at the first call, as after an interrupted write."""
    inner = getattr(kept, into)
    failed = []

    def failing(self, *args, **kwargs):
        if not failed:
            failed.append(self)
            raise error
        return inner(self, *args, **kwargs)

    return failing


@pytest.mark.parametrize("error", [KeyError("half"), TypeError("half"), MemoryError(), RecursionError()], ids=repr)
@pytest.mark.parametrize(
    ("kept", "into"), [(FleetMemo, "query"), (CompileCache, "__init__"), (PageCache, "keep")], ids=str
)
def test_a_failing_cache_costs_no_answer(monkeypatch, caplog, error, kept, into):
    world = World(random.Random(1), configured(**WHOLE, **CLAIMED))
    body = review({"metadata": {"name": "p"}, "spec": {"containers": [GPU_CONTAINER]}})
    fresh = webhook().decide("mutate", body, world.state(world.read()), PATIENCE)
    assert fresh.record.outcome == "translated"
    monkeypatch.setattr(kept, into, fails_once(error, kept, into))
    state = world.state(world.followed)
    assert webhook().decide("mutate", body, state, PATIENCE) == fresh
    assert "decided again without cached results" in caplog.text
    monkeypatch.undo()
    assert webhook().decide("mutate", body, state, PATIENCE) == fresh, "nothing half written is left"


def test_an_error_that_persists_without_caches_is_raised(monkeypatch):
    def failing(*_, **__):
        raise KeyError("always")

    world = World(random.Random(1), configured(**WHOLE, **CLAIMED))
    monkeypatch.setattr(FleetMemo, "query", failing)
    body = review({"metadata": {"name": "p"}, "spec": {"containers": [GPU_CONTAINER]}})
    with pytest.raises(KeyError, match="always"):
        webhook().decide("mutate", body, world.state(world.followed), PATIENCE)
