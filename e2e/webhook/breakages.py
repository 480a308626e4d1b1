"""Faults around drawbridge that are visible at once: each context creates a fault, and yields the finding that `doctor` names first."""

import json
from contextlib import contextmanager

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, request, template
from e2e.installed.breakages import ADMISSION, reference

TEAM = "team"
NODE = "night-0"
DRIVER = "night.example.com"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


def change(cluster, path, edit):
    """Edit an object, with retries on conflicts; return its previous version."""

    def write():
        obj = cluster.get(path)
        before = json.loads(json.dumps(obj))
        edit(obj)
        cluster.put(path, obj)
        return before

    return cluster.until(f"{path} is changed", write)


@contextmanager
def there(cluster, *items):
    """Objects that exist inside the block; creation is retried while a webhook does not answer."""
    try:
        for item in items:
            cluster.until(
                f"{item['kind']} {item['metadata']['name']} is made",
                lambda item=item: cluster.read(item) or cluster.create(item),
            )
        yield
    finally:
        cluster.remove(*reversed(items))
        cluster.until("they are gone", lambda: not any(map(cluster.read, items)))


@contextmanager
def a_node_that_is_not_ready(cluster, _):
    def ready(status):
        condition = {
            "type": "Ready",
            "status": status,
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        cluster.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [condition]}}, "strategic")

    ready("Unknown")
    try:
        yield f"Node/{NODE}", "O201", "claims team/keeps-drawbridge-"
    finally:
        ready("True")


@contextmanager
def a_webhook_that_does_not_answer(_, webhook):
    """The API server's requests get no answer, as behind a firewall or a NetworkPolicy."""
    with webhook.processes["webhook"].frozen():
        yield "MutatingWebhookConfiguration/drawbridge", "O015", "context deadline exceeded"


@contextmanager
def a_webhook_that_is_passed_by(cluster, webhook):
    """The same under failurePolicy Ignore, which hides the error."""
    path = f"{WEBHOOKS}/mutatingwebhookconfigurations/drawbridge"

    def policy(word):
        change(
            cluster, path, lambda configuration: [hook.update(failurePolicy=word) for hook in configuration["webhooks"]]
        )

    policy("Ignore")
    try:
        with webhook.processes["webhook"].frozen():
            yield (
                "MutatingWebhookConfiguration/drawbridge",
                "O015",
                "bypassed the webhook under failurePolicy Ignore",
            )
    finally:
        policy("Fail")


@contextmanager
def a_webhook_without_a_listener(cluster, webhook):
    """The connection is refused, as behind a Service without endpoints."""
    webhook.processes["webhook"].stop()
    try:
        yield "MutatingWebhookConfiguration/drawbridge", "O015", "connection refused"
    finally:
        webhook.start_webhook()


@contextmanager
def a_pool_that_is_not_whole(cluster, _):
    [slice_] = fleet.slices("parts.example.com", NODE, fleet.whole_gpus(2), by_name=True, pool="parts")
    slice_["spec"]["pool"]["resourceSliceCount"] = 2
    with there(cluster, slice_):
        yield f"ResourceSlice/{slice_['metadata']['name']}", "D401", "1 of 2 slices of pool parts"


@contextmanager
def devices_that_are_all_tainted(cluster, _):
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "night.example.com/repair", "effect": "NoExecute"}}
    rule = reference("resource.k8s.io/v1", "DeviceTaintRule", "repair") | {"spec": spec}
    with there(cluster, rule, claim("kept-away", TEAM, request("r", "night"))):
        yield (
            "DeviceTaintRule/repair",
            "O111",
            f"every device of {DRIVER} has a taint, such as night.example.com/repair, that is not tolerated by ResourceClaim/{TEAM}/kept-away",
        )


def asking(space, **resources):
    """A workload of one pod with a GPU in its own namespace."""
    template = {
        "metadata": {"labels": {"app": "asks"}},
        "spec": {"containers": [container(**limits(**{"nvidia.com/gpu": 1} | resources))]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "asks"}}, "template": template}
    return reference("apps/v1", "Deployment", "asks", space) | {"spec": spec}


def refusing(words, what, message, *objects, labels=None, **resources):
    """An object in the namespace of a workload that blocks the creation of its pod or claim."""

    @contextmanager
    def make(cluster, webhook):
        space = words.replace(" ", "-")
        tried = json.dumps(template("tried", space, request("r", "night")))
        cluster.namespace(space, (labels or {}) | {"drawbridge.dev/mode": "enforce"})
        named_ = [
            obj | {"metadata": obj["metadata"] | ({} if obj["kind"].startswith("Valid") else {"namespace": space})}
            for obj in objects
        ]
        with there(cluster, *named_):
            for obj in named_:
                if obj["kind"] == "ValidatingAdmissionPolicy":
                    cluster.until(
                        "it refuses",
                        lambda: (
                            cluster.kubectl(
                                "create", "--dry-run=server", "-f", "-", input=tried, check=False
                            ).returncode
                        ),
                    )
                if obj["kind"] == "ResourceQuota":
                    cluster.until("the quota counts", lambda item=obj: cluster.read(item)["status"].get("hard"))
            webhook.admits(space)
            with there(cluster, asking(space, **resources)):
                yield f"{'ReplicaSet' if what == 'O101' else 'Pod'}/{space}/asks-", what, message
        cluster.until("its pods are gone", lambda: gone(cluster, space))

    make.__name__ = words
    return make


def gone(cluster, space):
    places = [f"/apis/apps/v1/namespaces/{space}/replicasets", f"/api/v1/namespaces/{space}/pods"]
    for place in places:
        cluster.delete(place, gracePeriodSeconds=0)
    return not any(cluster.get(place)["items"] for place in places)


def quota(name, amount):
    return reference("v1", "ResourceQuota", "few") | {"spec": {"hard": {name: amount}}}


LIMITED = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
SMALL = reference("v1", "LimitRange", "small") | {"spec": LIMITED}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
GUARD = {
    "name": "guard.example.com",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "failurePolicy": "Fail",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "rules": [PODS],
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a-dead-webhook-of-others"}},
}
DEAD = reference(ADMISSION, "ValidatingWebhookConfiguration", "guard") | {"webhooks": [GUARD]}
COUNT = "count/{}.resource.k8s.io"
OWNED = reference(ADMISSION, "ValidatingAdmissionPolicy", "owned") | {"spec": {
    "matchConstraints": {"resourceRules": [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceclaimtemplates"], "operations": ["CREATE"]}]},
    "validations": [{"expression": "'owner' in object.metadata.?labels.orValue({})", "message": "every object needs an owner"}],
}}  # fmt: skip
IN_ONE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a-policy-against-templates"}}}
OWNED_THERE = reference(ADMISSION, "ValidatingAdmissionPolicyBinding", "owned") | {
    "spec": {"policyName": "owned", "validationActions": ["Deny"], "matchResources": IN_ONE}
}
AT_ONCE = [
    a_node_that_is_not_ready,
    a_webhook_that_does_not_answer,
    a_webhook_that_is_passed_by,
    a_webhook_without_a_listener,
    a_pool_that_is_not_whole,
    devices_that_are_all_tainted,
    refusing("a dead webhook of others", "O101", 'failed calling webhook "guard.example.com"', DEAD),
    refusing("limits", "O101", "maximum cpu usage per Container is 1", SMALL, cpu=2),
    refusing("security", "O101", 'violates PodSecurity "restricted:latest"', labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    refusing("a quota of pods", "O101", "exceeded quota: few", quota("pods", "0")),
    refusing("a quota of claims", "O106", "exceeded quota: few", quota(COUNT.format("resourceclaims"), "0")),
    refusing("a policy against templates", "O105", "denied request: every object needs an owner", OWNED, OWNED_THERE),
    refusing("a quota of templates", "O105", "ResourceQuota a-quota-of-templates/few has count/resourceclaimtemplates.resource.k8s.io used up", quota(COUNT.format("resourceclaimtemplates"), "0")),
]  # fmt: skip
