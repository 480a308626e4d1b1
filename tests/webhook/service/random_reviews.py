"""A cluster that changes at random, and random reviews of its objects."""

import base64
import json

import jsonpatch

from cluster import manifests, resources
from dra import wire
from dra.objects import DeviceClass, Node, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from tests.webhook.pods import EXAMPLES, WHOLE_GPUS
from webhook import names
from webhook.service.decider import ReviewDecider
from webhook.state import StateBuilder

CLAIMS = 16  # the number of names of claims that are created and deleted
SIGNING_KEYS = b"k" * 32, b"o" * 32
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
LIMITS = (
    {},
    {"cpu": "1"},
    {GPU: "1"},
    {GPU: "2"},
    {GPU: "99"},
    {GPU: "1.5"},
    {GPU: 1, "cpu": "2"},
    {GPU: 1, "cpu": "2", "memory": "1Gi"},
    {"cpu": "2", "memory": "1Gi"},
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
FOREIGN_SPEC = {"spec": {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": CLASS}}]}}}


def fleet():
    """Return the objects of the example fleet by kind, namespace and name."""
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


class ChangingCluster:
    """The objects of a cluster that changes, and the state builder of a webhook that follows the changes."""

    def __init__(self, rng, configuration):
        self.rng, self.configuration = rng, configuration
        self.keys = SIGNING_KEYS[:1]
        # The fleet is so small that one claim or one node affects answers.
        absent_slices = rng.choice([(), SLICES, SLICES[1:], SLICES[:-1]])
        self.objects = {key: obj for key, obj in FLEET.items() if key not in absent_slices or rng.random() < 0.3}
        self.fresh = True
        self.following_builder = self.read()

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
        self.following_builder.update_objects([obj])

    def drop(self, key):
        if key in self.objects:
            self.following_builder.update_objects([], [self.objects.pop(key)])

    def change(self, template):
        """Change the cluster at random; `template` is the name of a pod's template."""
        rng = self.rng
        match rng.randrange(12):
            case 0 | 8 | 9:
                self.put(self.claim())
            case 1:
                self.drop(("ResourceClaim", "ns", f"c{rng.randrange(CLAIMS)}"))
            case 10:
                self.put(self.changed_class())
            case 2 | 3:
                key = rng.choice([key for key in FLEET if key[0] in ("DeviceClass", "Node", "ResourceSlice")])
                if key in self.objects:
                    self.drop(key)
                else:
                    self.put(FLEET[key])
            case 4:
                self.keys = rng.choice([SIGNING_KEYS[:1], SIGNING_KEYS, SIGNING_KEYS[::-1]])
                self.following_builder.learn(keys=self.keys)
            case 5 if template:
                metadata = {"name": template, "namespace": "ns"}
                self.put(wire.convert({"metadata": metadata, "spec": FOREIGN_SPEC}, ResourceClaimTemplate))
            case 6 if template:
                self.drop(("ResourceClaimTemplate", "ns", template))
            case 7:
                self.fresh = not self.fresh
            case _:
                nodes = [obj for obj in self.objects.values() if isinstance(obj, Node)]
                node = rng.choice(nodes or [obj for obj in FLEET.values() if isinstance(obj, Node)])
                plain = {"metadata": {"name": node.metadata.name}, "spec": {"unschedulable": rng.random() < 0.5}}
                self.put(wire.convert(plain, Node))

    def changed_class(self):
        """Return a DeviceClass of the fleet without its selectors, or with another one."""
        key = self.rng.choice([key for key in FLEET if key[0] == "DeviceClass"])
        expression = self.rng.choice(["false", "device.driver != ''", "!device.allowMultipleAllocations"])
        selectors = self.rng.choice([[], [{"cel": {"expression": expression}}]])
        return wire.convert({"metadata": {"name": key[2]}, "spec": {"selectors": selectors}}, DeviceClass)

    def claim(self):
        """Return a claim, in most cases with an allocated device."""
        rng = self.rng
        slices = [obj.spec for obj in self.objects.values() if isinstance(obj, ResourceSlice) and obj.spec.devices]
        status = {}
        if slices and rng.random() < 0.85:
            slice_ = rng.choice(slices)
            device = rng.choice(slice_.devices).name
            result = {"request": "r", "driver": slice_.driver, "pool": slice_.pool.name, "device": device}
            status = {"allocation": {"devices": {"results": [result]}}}
        metadata = {"name": f"c{rng.randrange(CLAIMS)}", "namespace": "ns"}
        requests = [{"name": "r", "exactly": {"deviceClassName": CLASS}}]
        return wire.convert(
            {"metadata": metadata, "spec": {"devices": {"requests": requests}}, "status": status}, ResourceClaim
        )


class RandomReviews:
    """Draws reviews of new pods, forged pods, earlier pods, and pods that the webhook has changed."""

    def __init__(self, rng):
        self.rng = rng
        self.earlier = []  # the requests that were sent
        self.answered = []  # pods with the webhook's patch, and their namespaces
        self.template = ""  # the name of the latest template

    def request(self):
        """Return the arguments of the next review."""
        rng = self.rng
        if self.earlier and rng.random() < 0.4:  # a pod equal to an earlier one, as controllers create them
            repeated_request = dict(rng.choice(self.earlier[-4:]))
            if rng.random() < 0.3:
                repeated_request["dryRun"] = not repeated_request["dryRun"]
            if rng.random() < 0.3:
                renamed = repeated_request["obj"]["metadata"] | {"name": f"p{rng.randrange(3)}"}
                repeated_request["obj"] = repeated_request["obj"] | {"metadata": renamed}
            return repeated_request
        namespace = rng.choice(["ns", "ns", "ns", *NAMESPACES])
        new_request = {
            "obj": self.pod(),
            "namespace": namespace,
            "dryRun": rng.random() < 0.2,
            "userInfo": {"username": rng.choice(["", "alice", "system:serviceaccount:kube-system:replicaset"])},
        }
        if self.answered and rng.random() < 0.25:  # a pod that another webhook has changed, or an update
            new_request["obj"], new_request["namespace"] = rng.choice(self.answered)
            if rng.random() < 0.5:
                new_request |= {
                    "operation": "UPDATE",
                    "old": new_request["obj"],
                    "obj": self.applied_again(new_request["obj"]),
                }
        if rng.random() < 0.05:
            new_request |= rng.choice([{"sub": "status"}, {"operation": "DELETE"}, {"resource": "deployments"}])
        self.earlier.append(new_request)
        return new_request

    def applied_again(self, pod):
        """Return a translated pod whose first container has keys again, as if its manifest were applied again."""
        changed = json.loads(json.dumps(pod))
        changed["spec"]["containers"][0].setdefault("resources", {})["limits"] = dict(self.rng.choice(LIMITS))
        return changed

    def pod(self):
        rng = self.rng
        containers = [self.container(f"c{i}") for i in range(rng.choice([1, 1, 1, 2]))]
        spec = {"containers": containers, "schedulerName": "default-scheduler"}
        if rng.random() < 0.15:
            spec["initContainers"] = [self.container("i")]
        if rng.random() < 0.1:
            spec["serviceAccountName"] = "trainer"
        if rng.random() < 0.1:
            reference = rng.choice([{"resourceClaimName": "c1"}, {"resourceClaimTemplateName": self.template or "t"}])
            spec["resourceClaims"] = [{"name": "mine", **reference}]
        if rng.random() < 0.1:
            spec |= rng.choice([{"nodeName": "train-1"}, {"nodeSelector": {"nvidia.com/gpu.product": "A100-SHARED"}}])
        metadata = {"labels": self.labels()} if rng.random() < 0.5 else {}
        metadata |= {"annotations": self.annotations()} if rng.random() < 0.5 else {}
        metadata |= rng.choice([{"name": f"p{rng.randrange(3)}"}, {"generateName": "p-"}])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def container(self, name):
        limits = dict(self.rng.choice(LIMITS))
        env = [{"name": "A", "value": str(self.rng.randrange(3))}]
        return {"name": name, "image": "x", "resources": {"limits": limits, "requests": dict(limits)}, "env": env}

    def labels(self):
        words = {
            names.SKIP_LABEL: ["true", "yes"],
            names.TRANSLATED_LABEL: ["true"],
            names.WAITS_LABEL: ["true", "false"],
            "kueue.x-k8s.io/queue-name": ["q"],
            "app": ["a", "b"],
        }
        return self.choose_some(words)

    def annotations(self):
        """Return some of our annotations, genuine or forged, of this or another pod, and some annotations of others."""
        words = {
            names.ORIGINAL: ["{}", '{"containers":{"c0":{"nvidia.com/gpu":"1"}}}', "x"],
            names.TEMPLATES: ["v2 00 {}", "v1 x", "", "no words", "v2"],
            names.DECISION: ["[]"],
            names.DEVICES: ["{}"],
            "nvidia.com/use-gputype": ["A100", "L40S"],
            "note": ["x", "y" * 3000],
        }
        annotations_ = self.choose_some(words)
        if self.answered and self.rng.random() < 0.5:
            answered_pod, _ = self.rng.choice(self.answered)
            annotations_ |= self.choose_some(
                {key: [value] for key, value in answered_pod["metadata"].get("annotations", {}).items()}
            )
        return annotations_

    def choose_some(self, words):
        return {key: self.rng.choice(values) for key, values in words.items() if self.rng.random() < 0.3}

    def record(self, request, outcome):
        """Record the patched pod and its template, which later reviews use."""
        patch = json.loads(outcome.body)["response"].get("patch")
        if patch:
            pod = jsonpatch.apply_patch(request["obj"], json.loads(base64.b64decode(patch)))
            self.answered.append((pod, request["namespace"]))
        if outcome.record.templates:
            self.template = outcome.record.templates[0]


def new_decider():
    return ReviewDecider(None, None)


GPU_CONTAINER = {"name": "c0", "resources": {"limits": {GPU: "1"}}}
CONFIGURATIONS = {
    "plain": {},
    "declared": WHOLE_GPUS,
    "partial roll-out": {"canary": 50},
    "mixed fleet": {"mixed": {GPU: {"prefer": "dra"}}},
    "bridge": {"bridge": {"schedulerName": "ours", "drivers": ["hami-core-gpu.project-hami.io"], "fence": True}},
}
