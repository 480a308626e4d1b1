"""What becomes of pods between allocation and binding: kube-scheduler beside our plugin and our extender, with drivers that attach, fail and are late.

Each case is drawn at random and happens three times at once, on nodes of its own: the same devices with binding conditions (KEP-5007), the same
pods, the same answers of the driver, and the same thing that comes between. kube-scheduler says what is right; ours may not be much later.
"""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, SCHEDULER, Bridge, plugin_configuration
from e2e.actors.client import ApiError
from e2e.actors.workloads import claim, group, pod, request, using
from e2e.build import program
from e2e.ground.controlplane import GROUP_GATES, ControlPlane

pytestmark = pytest.mark.real
DRIVER = "attach.example.com"
CLASS = "attached"
STOCK = "stock"
LANES = {"stock": STOCK, "plugin": PLUGIN_SCHEDULER, "extender": SCHEDULER}
TIMEOUT = 6  # seconds for devices to be ready, for all three
LONGEST = 75  # seconds for a case; a pod that is not bound then stays so
BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
OF_DEFAULT = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
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
    """One story; `driver` says what becomes of each claim's first, second, ... allocation."""

    def __init__(self, number, again=""):
        draw = random.Random(number)
        self.name = f"b{number}{again}"
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
            self.driver.insert(0, draw.choice(("fail", "never")))  # else it is bound where it is
        self.late = draw.choice((0.2, 1.0))  # after the first allocation, something comes between
        if self.event == "refuse and cordon":
            self.driver, self.late = ["ready"], self.delay + 2

    def __repr__(self):
        what = "gang" if self.gang else "shared" if self.shared else "pods"
        return f"{self.name}: {self.pods} {what}, driver {self.driver} after {self.delay}, {self.event or 'nothing'} after {self.late}"  # fmt: skip


class Trial:
    """One case in one lane."""

    def __init__(self, cluster, case, lane):
        self.cluster, self.case, self.lane = cluster, case, lane
        self.name = f"{case.name}-{lane}"
        self.nodes = [f"{self.name}-{at}" for at in range(2)]
        self.pods = [f"{self.name}-p{at}" for at in range(case.pods)]
        self.attempts = {}  # uid of a claim → allocations it had
        self.current = {}  # uid → (what tells this allocation from the next, seen at)
        self.answered = set()  # (uid, attempt)
        self.came = None  # when there was the first allocation
        self.late_driver = False  # this machine had the driver answer, or something come between, too late
        self.between = False
        self.lifted = False
        self.bound = {}  # pod → seconds
        self.tainted = {node: set() for node in self.nodes}

    def device(self, name, node):
        made = fleet.device(
            name, {}, bindsToNode=True, bindingConditions=["Attached"], bindingFailureConditions=["Failed"]
        )
        if name in self.tainted[node]:
            made["taints"] = [{"key": "attach.example.com/broken", "effect": "NoSchedule"}]
        return made

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
        # Of equal nodes kube-scheduler takes any: what becomes of two pods would hang on whether they are on one node.
        liked = {"matchExpressions": [{"key": "liked", "operator": "Exists"}]}
        preferred = [{"weight": 100, "preference": liked}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        more = {"schedulingGroup": {"podGroupName": self.name}} if self.case.gang else {}
        for at, name in enumerate(self.pods):
            entry = using(self.claims[0 if self.case.shared else at])
            self.cluster.create(pod(name, "default", schedulerName=LANES[self.lane], nodeSelector={"trial": self.name}, affinity=affinity, resourceClaims=[entry], **more))  # fmt: skip
        self.begun = time.monotonic()

    def look(self, claims, pods):
        """Be the driver, and another client in between; see what has become of the pods."""
        now = time.monotonic()
        for name in self.pods:
            found = pods.get(name)
            if found is not None and found["spec"].get("nodeName") and name not in self.bound:
                self.bound[name] = now - self.begun
        for name in self.claims:
            if (found := claims.get(name)) is not None and found.get("status", {}).get("allocation"):
                self.attach(found, now)
        if self.came is not None:
            self.come_between(claims, now)

    def says(self, attempt):
        """What the driver says of an allocation, by its number; the last entry holds for all that follow."""
        return self.case.driver[min(attempt, len(self.case.driver)) - 1]

    def attach(self, found, now):
        uid, allocation = found["metadata"]["uid"], found["status"]["allocation"]
        mark = mark_of(found)
        fresh = uid not in self.current or self.current[uid][0] != mark
        attempt = self.attempts.get(uid, 0)
        if not fresh and (uid, attempt) in self.answered and not found["status"].get("devices") and self.says(attempt) != "never":  # fmt: skip
            fresh = True  # within the same second
        if fresh:
            attempt = self.attempts[uid] = attempt + 1
            self.current[uid] = mark, now
            self.came = self.came or now
        outcome = self.says(attempt)
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
            whole = self.slice(node)
            path = self.cluster.path_of(whole)
            self.cluster.patch(path, {"spec": {"devices": whole["spec"]["devices"], "pool": {"generation": 1 + len(self.tainted[node])}}})  # fmt: skip
        said = {
            "ready": {"Attached": "True"},
            "fail": {"Failed": "True"},
            "tainted": {"Failed": "True"},
            "false": {"Attached": "False"},
            "both": {"Attached": "True", "Failed": "True"},
        }[outcome]
        conditions = [{"type": type_, "status": status, "reason": "Said", "message": outcome, "lastTransitionTime": "2026-01-01T00:00:00Z"} for type_, status in said.items()]  # fmt: skip
        device = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": conditions}
        path = f"{OF_DEFAULT}/{found['metadata']['name']}/status"
        body = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "status": {"devices": [device]},
        }
        try:
            self.cluster.patch(path, body)
        except ApiError as error:
            if error.code not in (404, 409, 422):
                raise
            self.answered.discard((uid, attempt))

    def come_between(self, claims, now):
        event = self.case.event
        if self.between:
            if event.startswith("refuse") and not self.lifted and now - self.came > self.case.late + 9:
                self.lifted = True
                self.cluster.patch(f"/api/v1/namespaces/default/configmaps/{REFUSED}", {"data": {self.pods[0]: None}})
            return
        if now - self.came < self.case.late:
            return
        self.between = True
        if self.bound or now - self.came > self.case.late + max(self.case.delay, 2):
            return  # this machine was too slow: it is about what comes before the driver's first answer
        if not event.startswith("refuse") and any(
            self.says(max(attempt, self.attempts[uid])) == "ready" for uid, attempt in self.answered
        ):
            return  # the pods may be bound at any moment, in one lane before this and in another after it
        first = claims.get(self.claims[0])
        held = mark_of(first)
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
                    self.cluster.delete(f"{OF_DEFAULT}/{self.claims[0]}")
            case "deallocate":
                nothing = dict.fromkeys(("allocation", "reservedFor", "devices"))
                if first:
                    self.cluster.patch(f"{OF_DEFAULT}/{self.claims[0]}/status", {"status": nothing})
            case "share":
                other = pod(
                    f"{self.name}-x",
                    "default",
                    schedulerName="no-such-scheduler",
                    resourceClaims=[using(self.claims[0])],
                )
                other["spec"]["nodeName"] = node
                [made] = self.cluster.create(other)
                entry = {"resource": "pods", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
                if allocation:
                    try:
                        self.cluster.patch(f"{OF_DEFAULT}/{self.claims[0]}/status", {"status": {"reservedFor": [entry]}}, "strategic")  # fmt: skip
                    except ApiError as error:
                        if error.code not in (409, 422):
                            raise
        if (
            event in ("cordon", "taint", "remove node")
            and mark_of(listed(self.cluster, CLAIMS).get(self.claims[0])) != held
        ):
            self.late_driver = (
                True  # it was allocated anew since the last look, and may be bound to this node, or to another
            )

    def outcome(self, claims, pods):
        """What has become of each pod: gone, not bound, bound with what its claim says of it."""
        found = {}
        for at, name in enumerate(self.pods):
            which = self.claims[0 if self.case.shared else at]
            held = claims.get(which, {}).get("status", {})
            allocation = held.get("allocation")
            if name not in pods:
                found[f"p{at}"] = "gone"
            elif not pods[name]["spec"].get("nodeName"):
                found[f"p{at}"] = "waits"
            else:
                place = [one["pool"].removesuffix("-fleet") for one in allocation["devices"]["results"]] if allocation else []  # fmt: skip
                reserved = name in [one["name"] for one in held.get("reservedFor", ())]
                wrong = place != [pods[name]["spec"]["nodeName"]] or not reserved
                found[f"p{at}"] = f"bound without its devices ({place}, reserved {reserved})" if wrong else "bound"
        return found

    def is_over(self):
        expected = [name for name in self.pods if not (self.case.event == "delete pod" and name == self.pods[0])]
        return all(name in self.bound for name in expected)


@pytest.fixture(scope="module")
def stage():
    """A control plane with all three schedulers, and the same time for devices to be ready."""
    with ControlPlane(name="binding", feature_gates=GROUP_GATES) as cluster:
        bridge = Bridge(cluster)
        try:
            bridge.prepare()
            bridge.start(binding_timeout=TIMEOUT)
            bridge.start_scheduler()
            ours = plugin_configuration(bridge.socket) | BACKOFF
            cluster.start_scheduler(ours, name="binding-scheduler", binary=program("drawbridge-scheduler"))
            arguments = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "DynamicResourcesArgs",
                "bindingTimeout": f"{TIMEOUT}s",
            }
            profile = {"schedulerName": STOCK, "pluginConfig": [{"name": "DynamicResources", "args": arguments}]}
            cluster.start_scheduler({"profiles": [profile]} | BACKOFF, name="binding-stock")
            cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *refusal())
            yield cluster
        finally:
            bridge.remove()


def refusal():
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


def mark_of(found):
    """What tells an allocation of a claim from the next."""
    allocation = (found or {}).get("status", {}).get("allocation")
    return str((allocation["allocationTimestamp"], allocation["devices"]["results"])) if allocation else ""


def listed(cluster, path):
    return {one["metadata"]["name"]: one for one in cluster.get(path)["items"]}


def play(cluster, cases):
    """Let cases happen in all lanes at once; answer with the trials and what became of their pods."""
    trials = [Trial(cluster, case, lane) for case in cases for lane in LANES if not (case.gang and lane == "extender")]
    refused = {trial.pods[0]: "" for trial in trials if trial.case.event.startswith("refuse")}
    cluster.patch(f"/api/v1/namespaces/default/configmaps/{REFUSED}", {"data": refused or None})
    with ThreadPoolExecutor(6) as several:
        list(several.map(Trial.prepare, trials))
        list(several.map(Trial.begin, trials))
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            claims, pods = listed(cluster, CLAIMS), listed(cluster, "/api/v1/pods")
            open_ = [trial for trial in trials if not trial.is_over()]
            list(several.map(lambda trial: trial.look(claims, pods), open_))  # noqa: B023  it is over before the next
            if not open_:
                break
            time.sleep(0.1)
        claims, pods = listed(cluster, CLAIMS), listed(cluster, "/api/v1/pods")
        for trial in trials:
            waiting = [name for name in trial.pods if name in pods and name not in trial.bound]
            trial.told = {name: cluster.events("default", name)[-6:] for name in waiting}
        outcomes = {(trial.case.name, trial.lane): trial.outcome(claims, pods) for trial in trials}
        cluster.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds=0)
        cluster.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
        mine = [node for trial in trials for node in trial.nodes]
        present = listed(cluster, "/api/v1/nodes")
        list(
            several.map(
                lambda node: cluster.delete(f"/api/v1/nodes/{node}"), [node for node in mine if node in present]
            )
        )
        cluster.delete("/apis/resource.k8s.io/v1/resourceslices")
        cluster.until("the claims are gone", lambda: not listed(cluster, CLAIMS), 60)
    return trials, outcomes


def is_late(by, trial):
    """Whether what came of a trial, or of kube-scheduler's beside it, was decided by the load of this machine."""
    return trial.late_driver or by[trial.case.name, "stock"].late_driver


def judged(trials, outcomes):
    """Say where a lane of ours ends otherwise than kube-scheduler, or takes much longer."""
    by = {(trial.case.name, trial.lane): trial for trial in trials}
    for trial in trials:
        if trial.lane == "stock":
            continue
        stock = by[trial.case.name, "stock"]
        if is_late(by, trial):
            continue
        theirs, ours = outcomes[stock.case.name, "stock"], outcomes[trial.case.name, trial.lane]
        times = {lane.lane: [round(one, 1) for one in lane.bound.values()] for lane in (stock, trial)}
        worse = [name for name in ours if ours[name] != theirs[name] and not (theirs[name] == "waits" and ours[name] == "bound")]  # fmt: skip
        if worse:
            yield (
                trial.case.name,
                f"{trial.case!r}; {trial.lane}: {ours}, kube-scheduler: {theirs}, {times}, {trial.told}",
            )
        elif stock.bound and trial.bound and max(trial.bound.values()) > 2 * max(stock.bound.values()) + 5:
            yield trial.case.name, f"{trial.case!r}; {trial.lane} is late: {times}"


@pytest.mark.time_limit(1800, "it goes through several rounds of a minute")
def test_pods_come_to_their_nodes_as_with_kube_scheduler_whatever_their_devices_say(stage):
    first, number, each = (int(os.environ.get(f"BINDING_{what}", much)) for what, much in (("FIRST", 0), ("CASES", 24), ("EACH", 24)))  # fmt: skip
    left = []
    for at in range(first, first + number, each):
        left += compare(stage, range(at, min(at + each, first + number)), [])
    # Fewer at once: what was decided by the load of this machine, or differs, happens once more.
    wrong, late = [], []
    few = max(1, each // 3)
    for at in range(0, len(left), few):
        late += compare(stage, left[at : at + few], wrong, "x")
    assert not wrong, "\n".join(wrong)
    assert len(late) <= 2 * number // 3, f"this machine was too slow to compare the cases {late}"


def compare(stage, numbers, wrong, again=""):
    """Let cases happen, add what is wrong with them, and name those that differ, or of which a trial could not be compared."""
    trials, outcomes = play(stage, [Case(number, again) for number in numbers])
    differing = list(judged(trials, outcomes))
    wrong += [text for _, text in differing]
    for lane in LANES:
        times = [round(max(trial.bound.values()), 1) for trial in trials if trial.lane == lane and trial.bound]
        print(
            f"{lane}: {len(times)} cases with bound pods, median and last {sorted(times)[len(times) // 2 :: max(1, len(times) // 2)]} s"
        )
    by = {(trial.case.name, trial.lane): trial for trial in trials}
    late = {trial.case.name for trial in trials if is_late(by, trial)}
    print(f"{len(numbers)} cases, not compared: {sorted(late)}", *[text for _, text in differing], sep="\n")
    late.update(name for name, _ in differing)
    return [number for number in numbers if f"b{number}{again}" in late]
