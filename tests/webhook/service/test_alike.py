import copy
import json
import uuid

import msgspec
import pytest

from dra.objects import ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.webhook import hostile
from tests.webhook.admission.test_decide import ENFORCE, STOCK, configured, pod, review, state
from tests.webhook.pods import SIZES, example_fleet
from webhook.admission import decide as admission
from webhook.dialects import Position
from webhook.names import ORIGINAL, SKIP_LABEL, TRANSLATED_LABEL, WAITS_LABEL
from webhook.service.deciding.alike import BODY, Alike
from webhook.service.deciding.gate import Gate
from webhook.state.state import State

WORDS = {"nvidia.com/gpu": "1"}
SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}


def asked(obj=None, **request):
    """A review as an API server asks about it, with a uid of its own."""
    made = json.loads(review(pod(limits=WORDS) if obj is None else obj, namespace="ns"))
    made["request"] |= {"uid": str(uuid.uuid4()), **request}
    return compact(made)


def compact(value):
    """JSON as an API server writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.fixture
def alike():
    return Alike()


def decided(alike, body, on=ENFORCE):
    """Decide as the gate does; say whether the answer was known."""
    review_ = alike.read_review(body, on)
    known = alike.find(review_) if review_ else None
    if known is not None:
        return known, True
    outcome = admission.mutate(body, on)
    if review_:
        alike.keep(review_, outcome)
        alike.keep(review_, outcome)  # as if it had come twice
    return outcome, False


def test_what_came_once_is_only_marked(alike):
    first = alike.read_review(asked(), ENFORCE)
    outcome = admission.mutate(asked(), ENFORCE)
    alike.keep(first, msgspec.structs.replace(outcome, body=outcome.body))
    assert alike.find(first) is None


def _named(name):
    return lambda p: p["metadata"].update(name=name)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        _named("another"),
        _named('a "name" that is none\n'),
        lambda p: p["metadata"].update(labels={"app": "x"}),
        lambda p: p["metadata"].update(labels={"app": "y", "job": "z"}),
        lambda p: p["metadata"].update(annotations={"note": "x"}),
        lambda p: p["metadata"].update(ownerReferences=[{"kind": "Job", "name": "j", "controller": True}]),
        lambda p: p["spec"]["containers"][0].update(image="y", command=["a"], env=[{"name": "A", "value": "nvidia"}]),
        lambda p: p["spec"].update(volumes=[{"name": "kube-api-access-abcde", "projected": {}}]),
    ],
    ids=["nothing", "name", "odd name", "label", "labels", "annotation", "owner", "container", "volume"],
)
def test_pods_that_differ_in_what_no_rule_reads_get_one_decision_and_each_its_own_seal(alike, change):
    for earlier in ({}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}):
        decided(alike, asked(pod(limits=WORDS, **earlier)))
    obj = pod(limits=WORDS)
    change(obj)
    body = asked(obj, userInfo={"username": "eve"}, dryRun=True)
    outcome, known = decided(alike, body)
    assert known
    assert outcome == admission.mutate(body, ENFORCE), "what is remembered is what would have been decided"
    assert outcome.record.outcome == "translated"


def test_a_name_that_is_still_to_be_made_is_sealed_by_what_it_is_made_of(alike):
    decided(alike, asked())
    obj = pod(limits=WORDS, generateName="train-")
    del obj["metadata"]["name"]
    body = asked(obj)
    outcome, known = decided(alike, body)
    assert known
    assert outcome == admission.mutate(body, ENFORCE)
    assert outcome.record.object == "Pod/ns/train-*"


FLEET = msgspec.structs.replace(ENFORCE, configuration=configured(**SIZES), fleet=example_fleet())
CARDS = State(configuration=configured(meanings={"amd.com/gpu": "whole"}), keys=ENFORCE.keys)
CORPUS = {
    "a share": (pod(limits=SHARE, labels={"app": "x"}), FLEET),
    "one container": (pod(limits=WORDS, labels={"app": "x"}, annotations={"note": "x"}), ENFORCE),
    "no words": (pod(limits={"cpu": "1"}), ENFORCE),
    "left": (pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumen": "5"}), ENFORCE),
    "own claims": (
        pod() | {"spec": hostile.pod(limits=WORDS, resourceClaims=[{"name": "a", "resourceClaimName": "b"}])["spec"]},
        ENFORCE,
    ),
    "everything": (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "p-",
                "labels": {"pod-template-hash": "1", "kueue.x-k8s.io/queue-name": "q"},
                "annotations": {"nvidia.com/use-gputype": "A100", "drawbridge.dev/original": "{}"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "p-1", "controller": True}],
            },
            "spec": {
                "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"limits": WORDS}}],
                "containers": [
                    {
                        "name": "c",
                        "resources": {"limits": WORDS, "requests": WORDS},
                        "securityContext": {"privileged": False},
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "schedulerName": "hami-scheduler",
                "serviceAccountName": "s",
                "nodeSelector": {"a": "b"},
                "affinity": {"nodeAffinity": {}},
                "hostNetwork": False,
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            },
        },
        FLEET,
    ),
}
# What decides elsewhere: which nodes the pod is for, and whose network it has.
PARTITION = {"key": "amd.com/compute-memory-partition", "operator": "In", "values": ["cpx_nps4"]}
CORPUS["a partition"] = (pod(limits={"amd.com/gpu": "1"}), CARDS)
CORPUS["an adapter"] = (pod(limits={"vpc.amazonaws.com/efa": "1"}), CARDS)
OTHERWISE = ["", "x", "Always", "2", 5, True, None, [], {}, {"a": "b"}, [{"name": "a"}]]


def places(value, at=()):
    """Every place of a value, with what stands there."""
    yield at, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(members):
        yield from places(inner, (*at, key))


def put(value, at, new):
    """The same value with another one at a place; gone, if that is the ellipsis."""
    changed = copy.deepcopy(value)
    around = changed
    for key in at[:-1]:
        around = around[key]
    if new is ...:
        del around[at[-1]]
    else:
        around[at[-1]] = new
    return changed


def other_pods(obj, on):
    """Pods that differ from one in a single value: any that it has, any that a rule reads, and any that the API has."""
    for at, value in places(obj):
        if at:
            for new in (..., *OTHERWISE):
                if new is not value:
                    yield put(obj, at, new)
    rows = on.configuration.rows
    for where, place in (("annotations", Position.ANNOTATION), ("labels", Position.LABEL)):
        known = (*rows[place], *on.configuration.asking, SKIP_LABEL, TRANSLATED_LABEL, WAITS_LABEL, ORIGINAL)
        for key in (*known, "kubernetes.io/config.mirror", "drawbridge.dev/strategy"):
            for text in ("true", "1", "vgpu"):
                changed = copy.deepcopy(obj)
                changed["metadata"].setdefault(where, {})[key] = text
                yield changed
    for key in rows[Position.NODE_SELECTOR]:
        changed = copy.deepcopy(obj)
        changed["spec"].setdefault("nodeSelector", {})[key] = "x"
        yield changed
    for key, new in {
        "nodeName": "n",
        "schedulerName": "volcano",
        "hostNetwork": True,
        "serviceAccountName": "t",
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
        "resourceClaims": [{"name": "drawbridge-main-gpu", "resourceClaimName": "b"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [PARTITION]}]
                }
            }
        },
        "ephemeralContainers": [{"name": "e", "resources": {"limits": WORDS}}],
        "resources": {"limits": WORDS},
        "overhead": {"cpu": "1"},
        "securityContext": {"runAsUser": 1},
    }.items():
        yield put(obj, ("spec", key), new)
    for key, new in {
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
    }.items():
        yield put(obj, ("spec", "containers", 0, key), new)


@pytest.mark.parametrize("name", CORPUS)
def test_whatever_a_pod_says_otherwise_it_gets_its_own_decision(alike, name):
    """A rule that reads what the gist leaves out is found here: two pods with one gist would be decided differently."""
    obj, on = CORPUS[name]
    decided(alike, asked(obj), on)
    shared = 0
    for changed in other_pods(obj, on):
        body = asked(changed)
        gist = alike.read_review(body, on)
        known = gist and alike.find(gist)
        if known is not None:
            shared += 1
            assert known == admission.mutate(body, on), changed
    assert shared > 20


def test_a_variable_that_a_table_of_the_administrators_reads_is_part_of_what_is_decided_on(alike):
    keys = [
        {"name": "m.example/gpu", "role": "count", "unit": "count", "meaning": "cards"},
        {"name": "M_PRODUCT", "role": "models", "unit": "list", "place": "env", "meaning": "products"},
    ]
    table = {"name": "mine", "title": "Mine", "target": "gpu", "keys": keys}
    on = msgspec.structs.replace(ENFORCE, configuration=configured(dialects=[table]))
    assert on.configuration.variables
    for value in ("a", "b"):
        obj = pod(limits={"m.example/gpu": "1"})
        obj["spec"]["containers"][0]["env"] = [{"name": "M_PRODUCT", "value": value}]
        assert decided(alike, asked(obj), on)[1] is False


def test_a_partial_roll_out_covers_a_workload_or_not_whoever_came_before(alike):
    on = state(canary=50)
    found = set()
    for number in range(64):
        body = asked(pod(limits=WORDS, name=f"p{number}"))
        outcome, known = decided(alike, body, on)
        assert outcome == admission.mutate(body, on)
        found.add((outcome.record.mode, known))
    assert found == {("enforce", False), ("enforce", True), ("warn", False)}


def test_where_a_fleet_moves_node_by_node_each_pod_is_decided_by_itself(alike):
    on = msgspec.structs.replace(ENFORCE, configuration=configured(mixed={"nvidia.com/gpu": {"prefer": "dra"}}))
    assert alike.read_review(asked(), ENFORCE) is not None
    assert alike.read_review(asked(), on) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(operation="UPDATE"),
        lambda r: r.update(subResource="status"),
        lambda r: r.update(resource={"group": "apps", "version": "v1", "resource": "deployments"}),
        lambda r: r.update(kind={"group": "", "version": "v1", "kind": "Binding"}),
        lambda r: r.update(uid=""),
        lambda r: r.update(object=None),
        lambda r: r.update(object=[]),
        lambda r: r["object"].update(metadata=[]),
        lambda r: r["object"]["spec"].update(containers={}),
        lambda r: r["object"]["metadata"].update(annotations={"note": "x" * BODY}),
    ],
)
def test_what_is_no_pod_that_is_created_is_decided_by_itself(alike, change):
    whole = json.loads(asked())
    change(whole["request"])
    assert alike.read_review(compact(whole), ENFORCE) is None


def test_an_answer_that_says_the_uid_twice_is_not_remembered(alike):
    for uid in ("patch", "ns"):
        body = asked(uid=uid)
        decided(alike, body)
        outcome, known = decided(alike, asked())
        assert known is (uid == "ns")
        assert json.loads(outcome.body)["response"]["allowed"]
        alike = Alike()


def test_annotations_that_would_be_too_large_with_ours_are_decided_by_themselves(alike, monkeypatch):
    decided(alike, asked())
    body = asked(pod(limits=WORDS, annotations={"note": "x" * 3000}))
    decided(alike, asked(pod(limits=WORDS, annotations={"note": "x"})))
    assert decided(alike, body)[1] is True
    for module in ("webhook.service.deciding.alike", "webhook.translate.record"):
        monkeypatch.setattr(f"{module}.LARGEST", 3500)
    outcome, known = decided(alike, body)
    assert not known
    assert outcome.record.outcome == "left"
    small = asked(pod(limits=WORDS, annotations={"note": "x"}))
    assert admission.mutate(small, ENFORCE).record.outcome == "translated"
    assert decided(Alike(), small)[0].record.outcome == "translated"


def test_a_pod_left_for_its_large_annotations_says_nothing_about_smaller_ones(alike, monkeypatch):
    monkeypatch.setattr("webhook.translate.record.LARGEST", 3500)
    large = asked(pod(limits=WORDS, annotations={"note": "x" * 3000}))
    assert decided(alike, large)[0].record.outcome == "left"
    outcome, known = decided(alike, asked(pod(limits=WORDS, annotations={"note": "x"})))
    assert not known
    assert outcome.record.outcome == "translated"


def test_what_the_state_says_anew_is_decided_anew_and_the_stock_is_not_read(alike):
    body = asked()
    decided(alike, body)
    moved = msgspec.structs.replace(ENFORCE, stock=msgspec.structs.replace(STOCK))
    assert decided(alike, body, moved)[1] is True
    assert admission.mutate(body, ENFORCE) == admission.mutate(body, msgspec.structs.replace(ENFORCE, stock=None))
    for name in ENFORCE.__struct_fields__:
        if name in ("stock", "memo", "uses"):
            continue
        other = msgspec.structs.replace(moved, **{name: copy.copy(_other(getattr(moved, name)))})
        assert decided(alike, body, other)[1] is False, name
        assert decided(alike, body, moved)[1] is False, name


def _other(value):
    """Another object of equal value; another value where there is only one object of each."""
    match value:
        case frozenset():
            return value | {"another"}
        case bool():
            return not value
        case dict():
            return dict(value)
        case tuple():
            return (*value, *value)
        case None:  # no templates of nodes, so no prospects
            return STOCK
        case _:
            return copy.copy(value)


@pytest.mark.parametrize("mode", ["warn", "observe", "off"])
def test_only_what_is_enforced_is_remembered_because_the_rest_looks_at_the_stock(alike, mode):
    on = state(mode=mode)
    decided(alike, asked(), on)
    assert decided(alike, asked(), on)[1] is False


def test_what_is_remembered_is_bounded_by_bytes():
    alike = Alike(limit=100_000)
    for number in range(300):
        decided(alike, asked(pod(limits=WORDS | {"cpu": str(number)})))
    assert 1 < len(alike._answers) <= 20


def test_a_remembered_answer_is_weighed_on_the_stock_of_the_moment():
    """The replicas of a Deployment are translated once, and each is turned back from the moment on in which none could be served."""
    gate = Gate(None, None, lambda: "")
    limits = {"nvidia.com/gpu": "1"}
    lost = msgspec.structs.replace(ENFORCE, stock=Stock.of(slices=STOCK.slices.values(), nodes=STOCK.nodes.values()))
    for on, allowed in ((ENFORCE, True), (lost, False), (ENFORCE, True)):
        for number in range(4):
            body = asked(pod(limits=limits, name=f"p{number}"))
            outcome = gate.decide("mutate", body, on, 5.0)
            assert json.loads(outcome.body)["response"]["allowed"] is allowed
            assert outcome == admission.weigh(admission.mutate(body, on), on)
            if not allowed:
                assert "there is no DeviceClass" in outcome.record.problems[0]


class Weighing:
    """A gate, and how often it has weighed claims instead of knowing the verdict."""

    def __init__(self, monkeypatch):
        self.gate, self.times = Gate(None, None, lambda: ""), 0
        weigh = admission.weigh

        def counted(*args, **kwargs):
            self.times += 1
            return weigh(*args, **kwargs)

        monkeypatch.setattr(admission, "weigh", counted)

    def weighs(self, obj, on):
        before = self.times
        self.gate.decide("mutate", asked(obj), on, 5.0)
        return self.times > before


def holding(stock):
    """The state with another stock."""
    return msgspec.structs.replace(ENFORCE, stock=stock)


def made_claim(name, devices=()):
    """A claim of the namespace of these reviews, with these devices of the stock's."""
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": one} for one in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return convert({"metadata": {"name": name, "namespace": "ns"}, "status": status}, ResourceClaim)


@pytest.fixture
def weighing(monkeypatch):
    return Weighing(monkeypatch)


def settled(weighing, obj, on):
    """Until a verdict on such pods is known."""
    for _ in range(3):
        weighing.weighs(obj, on)
    assert not weighing.weighs(obj, on)


def test_a_verdict_outlives_claims_that_have_no_devices_and_nothing_else(weighing):
    obj, stock = pod(limits=WORDS), STOCK
    settled(weighing, obj, holding(stock))
    for idle in ([made_claim("a")], [made_claim("a")], [made_claim("b"), made_claim("c")]):
        stock = stock.with_all(idle)
        assert not weighing.weighs(obj, holding(stock))
    stock = stock.without("ResourceClaim", "ns/c")
    assert not weighing.weighs(obj, holding(stock))
    [node], [slice_], [class_] = stock.nodes.values(), stock.slices.values(), stock.classes.values()
    moved = (
        made_claim("a", ["gpu-0"]),
        made_claim("a"),
        msgspec.structs.replace(node),
        msgspec.structs.replace(slice_),
        msgspec.structs.replace(class_),
    )
    for one in moved:
        settled(weighing, obj, holding(stock))
        stock = stock.with_(one)
        assert weighing.weighs(obj, holding(stock)), one
    settled(weighing, obj, holding(stock))
    used = msgspec.structs.replace(holding(stock), uses={})
    assert weighing.weighs(obj, used), "what pods on nodes ask for is part of it"


def test_a_verdict_on_a_claim_that_a_pod_names_is_made_anew_when_any_claim_changes(weighing):
    obj = pod(limits=WORDS)
    obj["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimName": "mine"}]
    there = STOCK.with_(made_claim("mine"))
    settled(weighing, obj, holding(there))
    assert weighing.weighs(obj, holding(there.with_(made_claim("another"))))
