"""Does what the remedies of `drawbridge doctor` and `drawbridge explain` say, until a pod runs.

The pod is `p`. `made` are the manifests that the test has created. The operator adds to these what a remedy tells it to create, and
replaces those that a remedy tells it to correct, so the test can delete all of them.
"""

import json
import re
from copy import deepcopy

from e2e.actors.workloads import claim, request
from e2e.installed.breakages import findings_of_doctor, name_of, reference
from webhook import names

TOLERATION = {"key": names.FENCE, "operator": "Exists"}
CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")
COMMAND = r"kubectl (delete \w+ [\w.-]+)"


def run_command(cluster, remedy):
    """Run the command that a remedy prints."""
    cluster.kubectl(*re.search(COMMAND, remedy)[1].split())


class Operator:
    """A person who reads the first remedy, does it, and waits for its effect."""

    def __init__(self, cluster, namespace, class_, *, explained, made, undo):
        """`class_` is the DeviceClass with devices, `explained` returns what `explain` prints about the pod; `undo` is an ExitStack."""
        self.cluster, self.namespace, self.class_, self.explained = cluster, namespace, class_, explained
        self.made, self.undo = made, undo
        self.done: list[str] = []

    @property
    def pod(self):
        return next(item for item in self.made if (item["kind"], item["metadata"]["name"]) == ("Pod", "p"))

    def mend(self):
        """Do one remedy after the other until the pod runs; fail if a remedy changes nothing, or is none of ACTIONS."""
        awaited = "the pod runs, or needs another remedy"
        while (remedy := self.cluster.until(awaited, self.next_step, 60, self.state)) != "Running":
            self.done.append(remedy)
            for action, match in actions_of(remedy):
                action(self, match)

    def end(self):
        """Delete the pod, so that its kubelet ends it before its claim is deleted."""
        self.cluster.delete(self.cluster.path_of(self.pod))
        self.cluster.until("the pod is gone", lambda: self.cluster.read(self.pod) is None)

    def next_step(self):
        """Return "Running", or the first remedy that was not done yet: a scheduler needs a moment to see the effect of the last one."""
        if (self.cluster.read(self.pod) or {}).get("status", {}).get("phase") == "Running":
            return "Running"
        remedy = self.first_remedy()
        return remedy if remedy and remedy not in self.done and actions_of(remedy) else None

    def first_remedy(self):
        if finding := next(iter(findings_of_doctor(self.cluster)), None):
            return finding.remedy
        reason = self.explained()["state"]["reasons"][0]
        return next(iter(reason["remedies"]), reason["text"])  # what holds the devices, if the pod only waits

    def state(self):
        return json.dumps({"done": self.done, "next": self.first_remedy(), "state": self.explained()["state"]})

    # What a remedy says, by the words of ACTIONS

    def end_pod(self, match):
        self.cluster.remove(reference("v1", "Pod", match[1], self.namespace))

    def delete_claim(self, match):
        self.cluster.remove(reference("resource.k8s.io/v1", "ResourceClaim", match[1], self.namespace))

    def label_the_node(self, _):
        [(key, value)] = self.pod["spec"]["nodeSelector"].items()
        self.patch_node({key: value})
        self.undo.callback(self.patch_node, {key: None})

    def patch_node(self, labels):
        [node] = self.cluster.get("/api/v1/nodes")["items"]
        self.cluster.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": labels}})

    def add_the_toleration(self, _):
        def tolerate(item):
            spec = item["spec"] if item["kind"] == "ResourceClaim" else item["spec"]["spec"]
            spec["devices"]["requests"][0]["exactly"]["tolerations"] = [TOLERATION]

        self.recreate(lambda item: item["kind"] in CLAIMS and item["metadata"]["name"] == "p", tolerate)

    def create_the_class(self, _):
        spec = self.class_["spec"]
        self.add(reference("resource.k8s.io/v1", "DeviceClass", "e2e-none") | {"spec": spec})

    def correct_the_class(self, _):
        hollow = reference("resource.k8s.io/v1", "DeviceClass", "e2e-hollow")
        before = self.cluster.read(hollow)["spec"]
        self.cluster.patch(self.cluster.path_of(hollow), {"spec": self.class_["spec"]})
        self.undo.callback(self.cluster.patch, self.cluster.path_of(hollow), {"spec": before})

    def create_the_claim(self, _):
        self.add(claim("lost", self.namespace, request("device", self.class_["metadata"]["name"])))

    def raise_the_quota(self, _):
        [quota] = [item for item in self.made if item["kind"] == "ResourceQuota"]
        self.cluster.patch(self.cluster.path_of(quota), {"spec": {"hard": dict.fromkeys(quota["spec"]["hard"], "9")}})

    def correct_the_scheduler(self, _):
        self.recreate(lambda _: False, change_pod=lambda spec: spec.pop("schedulerName"))

    def request_fewer_cpus(self, match):
        def change(spec):
            spec["containers"][0]["resources"]["requests"]["cpu"] = match[1]

        self.recreate(lambda _: False, change_pod=change)

    def remove_the_gates(self, _):
        self.cluster.patch(self.cluster.path_of(self.pod), {"spec": {"schedulingGates": []}})

    def add(self, item):
        self.made.append(item)
        self.cluster.create(item)

    def recreate(self, is_changed, change=None, change_pod=None):
        """Delete the pod and the objects to change, which Kubernetes does not allow to change, and create them as corrected."""
        own_pod = self.pod
        old = [own_pod, *[item for item in self.made if is_changed(item)]]
        self.cluster.remove(*old)
        for item in old:
            self.cluster.until(f"{name_of(item)} is gone", lambda item=item: self.cluster.read(item) is None)
            self.made.remove(item)
        for item in reversed(old):
            corrected = deepcopy(item)
            if item is own_pod:
                if change_pod:
                    change_pod(corrected["spec"])
            else:
                change(corrected)
            self.add(corrected)


ACTIONS = {
    COMMAND: lambda self, match: run_command(self.cluster, match.string),
    r"^uncordon node ([^\s,]+)": lambda self, match: self.cluster.kubectl("uncordon", match[1]),
    r"^pod \w+/(\S+) holds": Operator.end_pod,
    r"^delete claim \w+/(\S+)": Operator.delete_claim,
    r"give a node the labels": Operator.label_the_node,
    r"add the toleration to a hand-written claim": Operator.add_the_toleration,
    r"install the driver's chart, which brings it": Operator.create_the_class,
    r"check the selectors of the class": Operator.correct_the_class,
    r"^create it, or": Operator.create_the_claim,
    r"have the ResourceQuota .*raised": Operator.raise_the_quota,
    r"correct schedulerName where the pod is created": Operator.correct_the_scheduler,
    r"request at most (\S+) cpu": Operator.request_fewer_cpus,
    r"remove the gates with kubectl edit": Operator.remove_the_gates,
}


def actions_of(remedy):
    """Return what a remedy tells to do, by its words."""
    return [(action, match) for pattern, action in ACTIONS.items() if (match := re.search(pattern, remedy))]
