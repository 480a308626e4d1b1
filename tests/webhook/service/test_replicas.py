"""What the webhook remembers of pods never changes an answer.

One webhook decides the reviews of random workloads, whose pods differ in names, amounts, labels, annotations and variables, while the cluster and
the configuration change. A second webhook, which is started anew and reads the cluster anew, decides each review once more. Answers and logged
records are equal. Each run draws another seed; a failure prints it.
"""

import copy
import json
import random
from functools import partial

import pytest
from msgspec.structs import replace

from allocator import FleetMemo
from cluster import resources
from dra import wire
from dra.cache import Cache
from dra.objects import ResourceClaimSpec
from dra.stock.stock import Stock
from tests.limits import PATIENCE, draws
from tests.webhook.admission.reviews import CLASS, ENFORCE, NODE, SLICE, applied, gpu_pod, review
from tests.webhook.admission.test_pod_parts import EVERY_CONFIGURATION, READS_VARIABLE
from tests.webhook.pods import NVIDIA_BY_CLAIM, WHOLE_GPUS, configured
from tests.webhook.service.random_reviews import (
    GPU,
    NAMESPACES,
    ChangingCluster,
    RandomReviews,
    new_decider,
)
from tests.webhook.service.test_remembered import caches
from webhook import names
from webhook.admission import decide, decide_review, replicas
from webhook.admission.replicas import Replicas
from webhook.state import State

AMOUNTS = ("100m", "1", "2", "1Gi", "1.5Gi", "64M", "40Gi", 3)
ODD_AMOUNTS = (*AMOUNTS, 0, "1e3", "x", None, "9000000000000000Ei")
# By name: values. Decisions read all names but the first.
LABELS = {
    "apps.kubernetes.io/pod-index": ("0", "1", "2", "10"),
    "kueue.x-k8s.io/queue-name": ("", "q"),
    names.SKIP_LABEL: ("true", "false"),
    "volcano.sh/queue-name": ("", "q"),
}
ANNOTATIONS = {
    "batch.kubernetes.io/job-completion-index": ("0", "1", "2", "10", "é"),
    "nvidia.com/use-gputype": ("A100", "L40S", "H100", ""),
    "hami.io/node-scheduler-policy": ("binpack", "spread", "x"),
    "drawbridge.dev/strategy": ("", "CompactFirst"),
    names.EXTENDED_RESOURCES: ("leave", "translate", "x"),
}
VARIABLES = {
    "RANK": ("0", "1", "10", "é\n"),
    "M_PRODUCT": ("A100", "L40S", "$(A)"),
    "HABANA_VISIBLE_DEVICES": ("all", "none"),
    "GPU_CORE_UTILIZATION_POLICY": ("", "force", "disable"),
}
DEVICES = (
    {GPU: "1"},
    {GPU: "2"},
    {GPU: "1", "nvidia.com/gpumem": "3000"},
    {"m.example/gpu": "1"},
    {"habana.ai/gaudi": "1"},
    {"koordinator.sh/gpu": "50", "cpu": "2"},
)
CONFIGURATIONS = EVERY_CONFIGURATION | {
    "a table with a variable": WHOLE_GPUS | {"dialects": [READS_VARIABLE]},
    "extended resources by claim": WHOLE_GPUS | NVIDIA_BY_CLAIM,
    "mode warn": {"mode": "warn"},
}


def compiled(name):
    return configured(**CONFIGURATIONS[name])


class ChangingNamespaces(ChangingCluster):
    """A changing cluster whose namespaces, quotas and configuration change, too."""

    def change(self, template):
        rng = self.rng
        namespace = rng.choice(list(NAMESPACES))
        metadata = {"name": "q", "namespace": namespace}
        hard = {rng.choice(["requests.nvidia.com/gpu", "requests.cpu", "count/pods"]): "4"}
        match rng.randrange(16):
            case 0 | 6:
                self.configuration = compiled(rng.choice(list(CONFIGURATIONS)))
                self.following_builder.configure(self.configuration)
            case 1:
                labels = {names.MODE_LABEL: rng.choice(["", "enforce", "warn", "observe", "off", "Off"])}
                obj = {"metadata": {"name": namespace, "labels": labels}}
                self.put(wire.convert(obj, resources.NAMESPACES.type))
            case 2:
                self.put(wire.convert({"metadata": metadata, "spec": {"hard": hard}}, resources.RESOURCE_QUOTAS.type))
            case 3:
                item = {"type": "Container", "max": {GPU: "1"}}
                obj = {"metadata": metadata, "spec": {"limits": [item]}}
                self.put(wire.convert(obj, resources.LIMIT_RANGES.type))
            case 4:
                obj = {"metadata": metadata, "spec": {"hard": {"gpu.nvidia.com/devices": rng.randrange(4)}}}
                self.put(wire.convert(obj, resources.DEVICE_QUOTAS.type))
            case 5:
                self.drop((rng.choice(["ResourceQuota", "LimitRange", "DeviceQuota"]), namespace, "q"))
            case _:
                super().change(template)


class Workload:
    """A random pod, of which a controller creates replicas."""

    def __init__(self, rng, random_reviews):
        self.rng = rng
        self.request = copy.deepcopy(random_reviews.request())
        pod = self.request["obj"]
        metadata = pod.setdefault("metadata", {})
        if rng.random() < 0.8:  # an earlier record would prevent most memories
            metadata.get("annotations", {}).clear()
        if rng.random() < 0.7:
            kind = rng.choice(["ReplicaSet", "StatefulSet", "Job", "DaemonSet"])
            metadata["ownerReferences"] = [{"kind": kind, "name": "w", "controller": True, "uid": "1"}]
        # In most workloads, only values differ that decisions do not read.
        is_read = self.is_read = rng.random() < 0.3
        self.label, self.annotation, self.variable = (
            rng.choice(list(texts)) if is_read else next(iter(texts)) for texts in (LABELS, ANNOTATIONS, VARIABLES)
        )
        self.amount = rng.choice(["memory", "cpu", "ephemeral-storage", GPU]) if is_read else "memory"
        if rng.random() < 0.5:
            amounts = rng.choice(DEVICES) | {"memory": "1Gi"}
            pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": dict(amounts)}
        self.is_generated = rng.random() < 0.5
        # Which parts differ between replicas.
        self.varied = {part for part in ("name", "label", "annotation", "variable", "amount") if rng.random() < 0.4}

    def replica(self):
        """Return the request of one pod."""
        rng, request = self.rng, copy.deepcopy(self.request)
        metadata, spec = request["obj"]["metadata"], request["obj"]["spec"]
        if "name" in self.varied:
            index = rng.randrange(12)
            metadata |= {"generateName": f"job-{index}-"} if self.is_generated else {"name": f"web-{index}"}
            if rng.random() < 0.3:
                request["name"] = f"web-{index}"
        if "label" in self.varied:
            metadata["labels"] = metadata.get("labels", {}) | {self.label: rng.choice(LABELS[self.label])}
        if "annotation" in self.varied:
            value = rng.choice(ANNOTATIONS[self.annotation])
            metadata["annotations"] = metadata.get("annotations", {}) | {self.annotation: value}
        for container in spec["containers"]:
            if "variable" in self.varied:
                value = rng.choice(VARIABLES[self.variable])
                container["env"] = [*container["env"], {"name": self.variable, "value": value}]
            if "amount" in self.varied:
                value = rng.choice(ODD_AMOUNTS if self.is_read else AMOUNTS)
                for part in {"limits", "requests"} & container.get("resources", {}).keys():
                    container["resources"][part][self.amount] = value
            token = f"kube-api-access-{rng.randrange(1 << 20):05x}"
            spec["volumes"] = [{"name": token, "projected": {}}]
            container |= {"volumeMounts": [{"name": token}], "image": rng.choice("xyz")}
        metadata["managedFields"] = [{"time": str(rng.random())}]
        return request


class Memory:
    """Counts how often verdicts are repeated, and how often on a later state."""

    def __init__(self, monkeypatch):
        self.repeated = self.held = 0
        verdict_on, holds = replicas._verdict_on, Replicas._holds

        def counted_verdict(*args):
            self.repeated += 1
            return verdict_on(*args)

        def counted_holds(*args):
            holds_ = holds(*args)
            self.held += holds_
            return holds_

        monkeypatch.setattr(replicas, "_verdict_on", counted_verdict)
        monkeypatch.setattr(Replicas, "_holds", counted_holds)


def differences(seed, count):
    """Decide about `count` reviews; return those whose answer differs from that of a freshly started webhook."""
    rng = random.Random(seed)
    cluster = ChangingNamespaces(rng, compiled(rng.choice(list(CONFIGURATIONS))))
    random_reviews, decider = RandomReviews(rng), new_decider()
    differing, fresh_builder, number, all_caches = [], None, 0, list(caches().values())
    while number < count:
        workload = Workload(rng, random_reviews)
        for _ in range(rng.randrange(3, 16)):
            number += 1
            if fresh_builder is None or rng.random() < 0.1:
                cluster.change(random_reviews.template)
                fresh_builder = cluster.read()
            request = workload.replica()
            path = "validate" if rng.random() < 0.03 else "mutate"
            options = {key: value for key, value in request.items() if key != "obj"}
            body = review(request["obj"], **options, uid=f"uid-{number}")
            state = cluster.state(cluster.following_builder)
            remembering = _attempt(lambda: decider.decide(path, body, state, PATIENCE))  # noqa: B023
            for cache in all_caches:
                cache.clear() if isinstance(cache, Cache) else cache.cache_clear()
            fresh_state = replace(cluster.state(fresh_builder), memo=FleetMemo())
            fresh = _attempt(lambda: decide_review(path, body, fresh_state))  # noqa: B023
            if remembering != fresh:
                differing.append((seed, request, remembering, fresh))
            if not isinstance(fresh, str):
                random_reviews.record(request, fresh)
    return differing


def _attempt(decide):
    try:
        return decide()
    except Exception as error:  # noqa: BLE001  it is compared
        return repr(error)


def test_answers_equal_those_of_a_freshly_started_webhook(monkeypatch):
    memory, seed = Memory(monkeypatch), random.SystemRandom().randrange(1 << 32)
    differing = differences(seed, 2_000)
    assert not differing, (len(differing), differing[0])
    assert memory.repeated > 100, seed
    assert memory.held > 10, seed


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_20000_answers_equal_those_of_a_freshly_started_webhook(monkeypatch, part):
    memory, seed = Memory(monkeypatch), random.SystemRandom().randrange(1 << 32)
    differing = differences(f"{seed} {part}", 2_000)
    assert not differing, (len(differing), differing[0])
    assert memory.repeated > 100, seed


# ---- what is remembered

MEMORY = {"nvidia.com/gpu": "1", "memory": "1Gi", "cpu": "1"}
HOST_CPUS = configured(koordinator={"hostResources": {"cpu": "cpu"}})
WITH_VARIABLE = configured(dialects=[READS_VARIABLE])


def state_with(configuration=ENFORCE.configuration, **fleet):
    return replace(ENFORCE, configuration=configuration, fleet=replace(ENFORCE.fleet, **fleet))


def one_gpu(**changes):
    """Return a GPU pod as an API server sends it: with a token volume of its own."""
    value = gpu_pod(limits=changes.pop("limits", MEMORY), name=changes.pop("name", "web-0"))
    value["metadata"] |= changes.pop("metadata", {})
    container = value["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": text} for name, text in changes.pop("env", {}).items()]
    token = f"kube-api-access-{random.randrange(1 << 20):05x}"
    value["spec"] |= {"volumes": [{"name": token, "projected": {}}]} | changes
    return value


def test_replicas_are_repeated_from_the_third_pod_on(monkeypatch):
    memory, remembered = Memory(monkeypatch), Replicas()
    counts = []
    for index in range(4):
        body = review(one_gpu(name=f"web-{index}"), uid=str(index))
        assert decide_review("mutate", body, ENFORCE, replicas=remembered) == decide_review("mutate", body, ENFORCE)
        counts.append(memory.repeated)
    assert counts == [0, 0, 1, 2]


UNREAD = {
    "names": [{"name": "web-0"}, {"name": "web-1"}],
    "names beside annotations": [{"name": f"web-{i}", "metadata": {"annotations": {"note": "x"}}} for i in "01"],
    "memory that the patch repeats": [
        {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "memory": amount}} for amount in ("1Gi", "2Gi")
    ],
    "memory": [{"limits": MEMORY | {"memory": amount}} for amount in ("1Gi", "2Gi")],
    "label": [{"metadata": {"labels": {"apps.kubernetes.io/pod-index": index}}} for index in "01"],
    "annotation": [{"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": i}}} for i in "01"],
    "variable": [{"env": {"RANK": rank}} for rank in ("0", "11")],
    "a variable of a table that is not configured": [{"env": {"M_PRODUCT": product}} for product in ("A", "B")],
}


@pytest.mark.parametrize("pods", UNREAD.values(), ids=UNREAD)
def test_values_that_no_decision_reads_are_in_no_key(monkeypatch, pods):
    memory, remembered = Memory(monkeypatch), Replicas()
    for _ in range(2):
        decide_review("mutate", review(one_gpu(**pods[0])), ENFORCE, replicas=remembered)
    body = review(one_gpu(**pods[1]))
    assert decide_review("mutate", body, ENFORCE, replicas=remembered) == decide_review("mutate", body, ENFORCE)
    assert memory.repeated == 1


READ = {
    "devices": (ENFORCE, [{"limits": MEMORY | {"nvidia.com/gpu": amount}} for amount in "12"]),
    "a quantity that nobody can read": (ENFORCE, [{"limits": MEMORY | {"memory": amount}} for amount in ("x", "y")]),
    "memory beside a device plugin": (
        state_with(handed_out_anywhere={"nvidia.com/gpu": frozenset("n")}),
        [{"limits": MEMORY | {"memory": amount}} for amount in ("1Gi", "2Gi")],
    ),
    "memory beside an extended resource": (
        state_with(extended={"nvidia.com/gpu": "gpu.nvidia.com"}),
        [{"limits": MEMORY | {"memory": amount}} for amount in ("1Gi", "2Gi")],
    ),
    "CPUs by claim": (state_with(HOST_CPUS), [{"limits": MEMORY | {"cpu": amount}} for amount in "12"]),
    "names in a partial roll-out": (state_with(configured(canary=50)), [{"name": "web-0"}, {"name": "web-1"}]),
    "a queue": (ENFORCE, [{"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}} for queue in "ab"]),
    "the skip label": (ENFORCE, [{"metadata": {"labels": {names.SKIP_LABEL: text}}} for text in ("true", "no")]),
    "a model": (
        ENFORCE,
        [{"metadata": {"annotations": {"nvidia.com/use-gputype": text}}} for text in ("A100", "L40S")],
    ),
    "the length of an annotation": (ENFORCE, [{"metadata": {"annotations": {"note": text}}} for text in ("x", "xy")]),
    "a variable": (ENFORCE, [{"env": {"HABANA_VISIBLE_DEVICES": text}} for text in ("all", "none")]),
    "a variable of a table": (state_with(WITH_VARIABLE), [{"env": {"M_PRODUCT": text}} for text in ("A", "B")]),
    "a folder of the node": (ENFORCE, [{"volumes": [{"hostPath": {"path": path}}]} for path in ("/a", "/b")]),
    "the operating system": (ENFORCE, [{"os": {"name": name}} for name in ("linux", "windows")]),
}


@pytest.mark.parametrize(("state", "pods"), READ.values(), ids=READ)
def test_values_that_decisions_may_read_are_in_the_key(monkeypatch, state, pods):
    memory, remembered = Memory(monkeypatch), Replicas()
    for _ in range(3):
        decide_review("mutate", review(one_gpu(**pods[0])), state, replicas=remembered)
    memory.repeated = 0
    body = review(one_gpu(**pods[1]))
    assert decide_review("mutate", body, state, replicas=remembered) == decide_review("mutate", body, state)
    assert memory.repeated == 0


TOO_MANY = {"nvidia.com/gpu": "99"}
MARKED = {"metadata": {"annotations": {names.ORIGINAL: "{}"}}}
NEVER = {
    "a refusal": (ENFORCE, {"limits": TOO_MANY}, {}),
    "an earlier record": (ENFORCE, MARKED, {}),
    "an update": (ENFORCE, {}, {"operation": "UPDATE", "old": {}}),
    "a review of another name": (ENFORCE, {}, {"name": "other"}),
    "CPUs by claim": (state_with(configured(cpuClaims={"default": "translate"})), {}, {}),
    "a mixed fleet": (state_with(configured(mixed={"nvidia.com/gpu": {"prefer": "dra"}})), {}, {}),
}


@pytest.mark.parametrize(("state", "changes", "options"), NEVER.values(), ids=NEVER)
def test_some_pods_are_never_remembered(monkeypatch, state, changes, options):
    memory, remembered = Memory(monkeypatch), Replicas()
    for _ in range(4):
        decide_review("mutate", review(one_gpu(**changes), **options), state, replicas=remembered)
    assert memory.repeated == 0
    assert not remembered._entries


def test_undecided_pods_are_not_remembered():
    remembered = Replicas()
    for _ in range(3):
        outcome = decide_review("mutate", review(one_gpu()), ENFORCE, replicas=remembered, is_out_of_time=lambda: True)
        assert outcome.is_late or outcome.record.outcome == "undecided"
    assert not remembered._entries


# ---- later states

ONE_DEVICE = replace(SLICE, spec=replace(SLICE.spec, devices=SLICE.spec.devices[:1]))
FEWER = Stock.of(slices=[ONE_DEVICE], classes=[CLASS], nodes=[NODE])
LATER = {
    "the same stock": (replace(ENFORCE), 1),
    "fewer devices": (replace(ENFORCE, stock=FEWER), 0),
    "no stock": (replace(ENFORCE, stock=None), 1),
    "another key": (replace(ENFORCE, keys=(b"o" * 32,)), 0),
    "another configuration": (replace(ENFORCE, configuration=configured()), 0),
    "a quota": (replace(ENFORCE, quotas={"ns": frozenset({"requests.nvidia.com/gpu"})}), 0),
}


@pytest.mark.parametrize(("later", "repeated"), LATER.values(), ids=LATER)
def test_a_verdict_counts_on_a_later_state_if_it_is_the_same_there(monkeypatch, later, repeated):
    memory, remembered = Memory(monkeypatch), Replicas()
    body = review(one_gpu(limits={"nvidia.com/gpu": "2"}))
    for _ in range(2):
        decide_review("mutate", body, ENFORCE, replicas=remembered)
    assert decide_review("mutate", body, later, replicas=remembered) == decide_review("mutate", body, later)
    assert memory.repeated == repeated


def test_a_template_that_exists_meanwhile_changes_the_answer(monkeypatch):
    memory, remembered = Memory(monkeypatch), Replicas()
    body = review(one_gpu())
    for _ in range(2):
        outcome = decide_review("mutate", body, ENFORCE, replicas=remembered)
    [name] = outcome.record.templates
    annotation = applied(one_gpu(), outcome)["metadata"]["annotations"][names.TEMPLATES]
    spec = wire.convert(
        json.loads(annotation.partition("{")[1] + annotation.partition("{")[2])[name]["spec"], ResourceClaimSpec
    )
    later = replace(ENFORCE, templates={("ns", name): spec})
    again = decide_review("mutate", body, later, replicas=remembered)
    assert again == decide_review("mutate", body, later)
    assert again != outcome
    assert memory.repeated == 0


class RecordingState(State, frozen=True, kw_only=True, eq=False):
    """A state that records the fields that are read."""

    def __getattribute__(self, name):
        if name in State.__struct_fields__:
            READ_FIELDS.add(name)
        return super().__getattribute__(name)


READ_FIELDS = set()


def test_translations_read_no_field_of_a_state_that_only_judgements_may_read(monkeypatch):
    translate, read = decide.translate, set()

    def recorded(pod, state, **options):
        READ_FIELDS.clear()
        recording = RecordingState(**{field: getattr(state, field) for field in State.__struct_fields__})
        others = options.pop("judge_others").func
        judge_others = partial(others, state=recording, budget=options["budget"])
        try:
            return translate(pod, recording, judge_others=judge_others, **options)
        finally:
            if not state.configuration.claims_cpus:  # then nothing is remembered
                read.update(READ_FIELDS)

    monkeypatch.setattr(decide, "translate", recorded)
    differences("fields", draws(4_000))
    assert "configuration" in read
    assert "fleet" in read
    assert read & replicas.JUDGED <= {"templates"}


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(replicas, "MAX_BYTES", 1 << 20)
    remembered = Replicas()
    for index in range(200):
        body = review(one_gpu(metadata={"annotations": {"note": "x" * index}}))
        decide_review("mutate", body, ENFORCE, replicas=remembered)
        decide_review("mutate", body, ENFORCE, replicas=remembered)
    assert 10 < len(remembered._entries) <= 64
