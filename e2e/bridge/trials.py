"""Random cases of binding conditions: a driver attaches devices, fails, or is late, while another client may intervene.

Each case is played in two lanes: with kube-scheduler and with our scheduler. Each lane of a case has nodes of its own.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import ApiError
from e2e.actors.workloads import claim, group, pod, request, using

DRIVER = "attach.example.com"
CLASS = "attached"
STOCK = "stock"
LANES = {"stock": STOCK, "ours": SCHEDULER}
TIMEOUT = 6  # seconds for devices to be ready, in all lanes
LONGEST = 75  # seconds for a case; a pod that is not bound by then counts as waiting
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
DEFAULT_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
REFUSED = "drawbridge-test-refused"
OUTCOMES = ("ready", "fail", "never", "false", "both", "tainted")
EVENTS = (
    "",
    "",
    "cordon",
    "taint",
    "delete pod",
    "delete claim",
    "deallocate",
    "share",
    "refuse",
    "refuse and cordon",
    "remove node",
)


class Case:
    """One case; `driver` lists the driver's outcomes for the first, second, ... allocation of each claim."""

    def __init__(self, number, suffix=""):
        draw = random.Random(number)
        self.name = f"b{number}{suffix}"
        self.gang = draw.random() < 0.15
        self.event = draw.choice(EVENTS)
        self.devices = draw.randint(2, 3)  # of each node
        self.pods = 2 if self.gang else draw.choice((1, 1, 2))
        self.shared = not self.gang and self.pods == 2 and draw.random() < 0.5
        self.driver = [draw.choice(OUTCOMES) for _ in range(draw.randint(0, 2))]
        if draw.random() < 0.9:
            self.driver.append("ready")
        self.driver = self.driver or ["never"]
        self.delay = draw.choice((0.3, 1.5, 3.0))
        if self.event in ("cordon", "taint", "remove node") and self.driver[0] == "ready":
            self.driver.insert(0, draw.choice(("fail", "never")))  # otherwise the pod is bound before the intervention
        self.intervention_delay = draw.choice((0.2, 1.0))  # seconds from the first allocation to the intervention
        if self.event == "refuse and cordon":
            self.driver, self.intervention_delay = ["ready"], self.delay + 2

    def __repr__(self):
        kind = "gang" if self.gang else "shared" if self.shared else "pods"
        return f"{self.name}: {self.pods} {kind}, driver {self.driver} after {self.delay}, {self.event or 'nothing'} after {self.intervention_delay}"  # fmt: skip


class Trial:
    """One case in one lane."""

    def __init__(self, cluster, case, lane):
        self.cluster, self.case, self.lane = cluster, case, lane
        self.name = f"{case.name}-{lane}"
        self.nodes = [f"{self.name}-{at}" for at in range(2)]
        self.pods = [f"{self.name}-p{at}" for at in range(case.pods)]
        self.attempts = {}  # uid of a claim → number of its allocations
        self.current = {}  # uid → (mark of its allocation, time when it was seen)
        self.answered = set()  # (uid, attempt)
        self.first_allocation = None  # time of the first allocation
        self.late_driver = False  # this machine was too slow for the driver's answer or the intervention
        self.intervened = False
        self.refusal_lifted = False
        self.bound = {}  # pod → seconds
        self.tainted = {node: set() for node in self.nodes}

    def device(self, name, node):
        published = fleet.device(
            name, {}, bindsToNode=True, bindingConditions=["Attached"], bindingFailureConditions=["Failed"]
        )
        if name in self.tainted[node]:
            published["taints"] = [{"key": "attach.example.com/broken", "effect": "NoSchedule"}]
        return published

    def slice(self, node):
        devices = [self.device(f"d{at}", node) for at in range(self.case.devices)]
        return fleet.slices(DRIVER, node, devices, by_name=True)[0]

    def prepare(self):
        self.cluster.add_fake_nodes(2, prefix=f"{self.name}-", labels={"trial": self.name})
        self.cluster.patch(f"/api/v1/nodes/{self.nodes[0]}", {"metadata": {"labels": {"liked": "yes"}}})
        self.cluster.create(*(self.slice(node) for node in self.nodes))
        names = ["shared"] if self.case.shared else [f"c{at}" for at in range(self.case.pods)]
        self.claims = [f"{self.name}-{name}" for name in names]
        self.cluster.create(*(claim(name, "default", request("r", CLASS)) for name in self.claims))

    def begin(self):
        if self.case.gang:
            self.cluster.create(group(self.name, "default", self.case.pods))
        # Among equal nodes kube-scheduler selects any, and the result for two pods would depend on whether they share a node.
        preference = {"matchExpressions": [{"key": "liked", "operator": "Exists"}]}
        preferred = [{"weight": 100, "preference": preference}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        fields = {"schedulingGroup": {"podGroupName": self.name}} if self.case.gang else {}
        for index, name in enumerate(self.pods):
            entry = using(self.claims[0 if self.case.shared else index])
            self.cluster.create(pod(name, "default", schedulerName=LANES[self.lane], nodeSelector={"trial": self.name}, affinity=affinity, resourceClaims=[entry], **fields))  # fmt: skip
        self.begun = time.monotonic()

    def observe(self, claims, pods):
        """Act as the driver and as another client; record which pods are bound."""
        now = time.monotonic()
        for name in self.pods:
            item = pods.get(name)
            if item is not None and item["spec"].get("nodeName") and name not in self.bound:
                self.bound[name] = now - self.begun
        for name in self.claims:
            if (item := claims.get(name)) is not None and item.get("status", {}).get("allocation"):
                self.attach(item, now)
        if self.first_allocation is not None:
            self.intervene(claims, now)

    def driver_outcome(self, attempt):
        """The driver's outcome for an allocation, by its number; the last one repeats."""
        return self.case.driver[min(attempt, len(self.case.driver)) - 1]

    def attach(self, claim_, now):
        uid, allocation = claim_["metadata"]["uid"], claim_["status"]["allocation"]
        allocation_id = allocation_id_of(claim_)
        is_new = uid not in self.current or self.current[uid][0] != allocation_id
        attempt = self.attempts.get(uid, 0)
        if not is_new and (uid, attempt) in self.answered and not claim_["status"].get("devices") and self.driver_outcome(attempt) != "never":  # fmt: skip
            is_new = True  # reallocated within the same second
        if is_new:
            attempt = self.attempts[uid] = attempt + 1
            self.current[uid] = allocation_id, now
            self.first_allocation = self.first_allocation or now
        outcome = self.driver_outcome(attempt)
        if (uid, attempt) in self.answered or now - self.current[uid][1] < self.case.delay:
            return
        self.answered.add((uid, attempt))
        if outcome == "never":
            return
        allocated = datetime.fromisoformat(allocation["allocationTimestamp"])
        self.late_driver |= (datetime.now(UTC) - allocated).total_seconds() > TIMEOUT
        [result] = allocation["devices"]["results"]
        if outcome == "tainted":
            node = result["pool"].removesuffix("-fleet")
            self.tainted[node].add(result["device"])
            slice_ = self.slice(node)
            path = self.cluster.path_of(slice_)
            self.cluster.patch(path, {"spec": {"devices": slice_["spec"]["devices"], "pool": {"generation": 1 + len(self.tainted[node])}}})  # fmt: skip
        statuses = {
            "ready": {"Attached": "True"},
            "fail": {"Failed": "True"},
            "tainted": {"Failed": "True"},
            "false": {"Attached": "False"},
            "both": {"Attached": "True", "Failed": "True"},
        }[outcome]
        conditions = [{"type": type_, "status": status, "reason": "Said", "message": outcome, "lastTransitionTime": "2026-01-01T00:00:00Z"} for type_, status in statuses.items()]  # fmt: skip
        device = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": conditions}
        path = f"{DEFAULT_CLAIMS}/{claim_['metadata']['name']}/status"
        body = {
            "metadata": {"resourceVersion": claim_["metadata"]["resourceVersion"]},
            "status": {"devices": [device]},
        }
        try:
            self.cluster.patch(path, body)
        except ApiError as error:
            if error.code not in (404, 409, 422):
                raise
            self.answered.discard((uid, attempt))

    def intervene(self, claims, now):
        event = self.case.event
        if self.intervened:
            if (
                event.startswith("refuse")
                and not self.refusal_lifted
                and now - self.first_allocation > self.case.intervention_delay + 9
            ):
                self.refusal_lifted = True
                self.cluster.patch(f"/api/v1/namespaces/default/configmaps/{REFUSED}", {"data": {self.pods[0]: None}})
            return
        if now - self.first_allocation < self.case.intervention_delay:
            return
        self.intervened = True
        if self.bound or now - self.first_allocation > self.case.intervention_delay + max(self.case.delay, 2):
            return  # this machine was too slow: the intervention must precede the driver's first answer
        if not event.startswith("refuse") and any(
            self.driver_outcome(max(attempt, self.attempts[uid])) == "ready" for uid, attempt in self.answered
        ):
            return  # the pods may be bound at any moment, before or after the intervention depending on the lane
        first = claims.get(self.claims[0])
        id_before = allocation_id_of(first)
        allocation = (first or {}).get("status", {}).get("allocation")
        node = allocation["devices"]["results"][0]["pool"].removesuffix("-fleet") if allocation else self.nodes[0]
        match event:
            case "cordon" | "refuse and cordon":
                self.cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
            case "taint":
                taint = {"key": "example.com/no", "effect": "NoSchedule"}
                self.cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}}, "strategic")
            case "remove node":
                self.cluster.delete(f"/api/v1/nodes/{node}")
            case "delete pod":
                self.cluster.delete(f"/api/v1/namespaces/default/pods/{self.pods[0]}", gracePeriodSeconds=0)
            case "delete claim":
                if first:
                    self.cluster.delete(f"{DEFAULT_CLAIMS}/{self.claims[0]}")
            case "deallocate":
                deallocated = dict.fromkeys(("allocation", "reservedFor", "devices"))
                if first:
                    self.cluster.patch(f"{DEFAULT_CLAIMS}/{self.claims[0]}/status", {"status": deallocated})
            case "share":
                other = pod(
                    f"{self.name}-x",
                    "default",
                    schedulerName="no-such-scheduler",
                    resourceClaims=[using(self.claims[0])],
                )
                other["spec"]["nodeName"] = node
                [other_pod] = self.cluster.create(other)
                entry = {"resource": "pods", "name": other_pod["metadata"]["name"], "uid": other_pod["metadata"]["uid"]}
                if allocation:
                    try:
                        self.cluster.patch(f"{DEFAULT_CLAIMS}/{self.claims[0]}/status", {"status": {"reservedFor": [entry]}}, "strategic")  # fmt: skip
                    except ApiError as error:
                        if error.code not in (409, 422):
                            raise
        if (
            event in ("cordon", "taint", "remove node")
            and allocation_id_of(by_name(self.cluster, CLAIMS).get(self.claims[0])) != id_before
        ):
            self.late_driver = (
                True  # the claim was reallocated meanwhile, so its pod may be bound to this node or to another
            )

    def outcome(self, claims, pods):
        """The result for each pod: deleted, waiting, or bound, with or without its devices."""
        outcomes = {}
        for index, name in enumerate(self.pods):
            claim_name = self.claims[0 if self.case.shared else index]
            status = claims.get(claim_name, {}).get("status", {})
            allocation = status.get("allocation")
            if name not in pods:
                outcomes[f"p{index}"] = "gone"
            elif not pods[name]["spec"].get("nodeName"):
                outcomes[f"p{index}"] = "waits"
            else:
                nodes = [result["pool"].removesuffix("-fleet") for result in allocation["devices"]["results"]] if allocation else []  # fmt: skip
                reserved = name in [consumer["name"] for consumer in status.get("reservedFor", ())]
                is_wrong = nodes != [pods[name]["spec"]["nodeName"]] or not reserved
                outcomes[f"p{index}"] = (
                    f"bound without its devices ({nodes}, reserved {reserved})" if is_wrong else "bound"
                )
        return outcomes

    def is_over(self):
        expected = [name for name in self.pods if not (self.case.event == "delete pod" and name == self.pods[0])]
        return all(name in self.bound for name in expected)


def refusing_policy():
    """A policy that refuses to bind the pods that a ConfigMap names."""
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": REFUSED},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}]},
            "validations": [{"expression": "!has(params.data) || !(object.metadata.name in params.data)"}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": REFUSED},
        "spec": {
            "policyName": REFUSED,
            "validationActions": ["Deny"],
            "paramRef": {"name": REFUSED, "namespace": "default", "parameterNotFoundAction": "Allow"},
        },
    }
    names = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": REFUSED, "namespace": "default"}}
    return names, policy, binding


def allocation_id_of(claim_):
    """A value that differs between allocations of a claim."""
    allocation = (claim_ or {}).get("status", {}).get("allocation")
    return str((allocation["allocationTimestamp"], allocation["devices"]["results"])) if allocation else ""


def by_name(cluster, path):
    return {item["metadata"]["name"]: item for item in cluster.get(path)["items"]}


def play(cluster, cases):
    """Play cases in all lanes at once; return the trials and the outcomes of their pods."""
    trials = [Trial(cluster, case, lane) for case in cases for lane in LANES]
    refused_pods = {trial.pods[0]: "" for trial in trials if trial.case.event.startswith("refuse")}
    cluster.patch(f"/api/v1/namespaces/default/configmaps/{REFUSED}", {"data": refused_pods or None})
    with ThreadPoolExecutor(6) as executor:
        list(executor.map(Trial.prepare, trials))
        list(executor.map(Trial.begin, trials))
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            claims, pods = by_name(cluster, CLAIMS), by_name(cluster, "/api/v1/pods")
            unfinished = [trial for trial in trials if not trial.is_over()]
            list(executor.map(lambda trial: trial.observe(claims, pods), unfinished))  # noqa: B023  it ends before the next iteration
            if not unfinished:
                break
            time.sleep(0.1)
        claims, pods = by_name(cluster, CLAIMS), by_name(cluster, "/api/v1/pods")
        for trial in trials:
            waiting = [name for name in trial.pods if name in pods and name not in trial.bound]
            trial.last_events = {name: cluster.events("default", name)[-6:] for name in waiting}
        outcomes = {(trial.case.name, trial.lane): trial.outcome(claims, pods) for trial in trials}
        cluster.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds=0)
        cluster.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
        nodes = [node for trial in trials for node in trial.nodes]
        present = by_name(cluster, "/api/v1/nodes")
        list(
            executor.map(
                lambda node: cluster.delete(f"/api/v1/nodes/{node}"), [node for node in nodes if node in present]
            )
        )
        cluster.delete("/apis/resource.k8s.io/v1/resourceslices")
        cluster.until("the claims are gone", lambda: not by_name(cluster, CLAIMS), 60)
    return trials, outcomes
