import copy
import json
import uuid

import msgspec
import pytest

from dra.stock import Stock
from tests.webhook.admission.test_decide import ENFORCE, STOCK, pod, review, state
from webhook.admission import decide as admission
from webhook.service.deciding.alike import Alike
from webhook.service.deciding.gate import Gate

TOKEN = "kube-api-access-"


def asked(end="abcde", *, name=TOKEN, **more):
    """The review of a replica, as an API server asks about it, and its uid."""
    obj = pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, **more)
    obj["spec"]["volumes"] = [{"name": name + end, "projected": {}}]
    obj["spec"]["containers"][0]["volumeMounts"] = [{"name": name + end, "mountPath": "/x"}]
    uid = str(uuid.uuid4())
    made = json.loads(review(obj, namespace="ns"))
    made["request"]["uid"] = uid
    return compact(made), uid


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
    first = alike.read_review(asked("abcde")[0], ENFORCE)
    outcome = admission.mutate(asked("abcde")[0], ENFORCE)
    alike.keep(first, msgspec.structs.replace(outcome, body=outcome.body))
    assert alike.find(first) is None


def test_a_replica_gets_the_answer_of_the_first_with_its_own_uid(alike):
    first, _ = asked("abcde")
    assert decided(alike, first)[1] is False
    second, uid = asked("fghij")
    outcome, known = decided(alike, second)
    assert known
    assert outcome == admission.mutate(second, ENFORCE), "what is remembered is what would have been decided"
    assert json.loads(outcome.body)["response"]["uid"] == outcome.record.uid == uid


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["object"]["spec"]["containers"][0]["resources"]["limits"].update({"nvidia.com/gpumem": "3001"}),
        lambda r: r["object"]["metadata"].update(annotations={"nvidia.com/use-gputype": "A100"}),
        lambda r: r.update(namespace="other"),
        lambda r: r["object"]["spec"]["containers"][0].update(image="y"),
        lambda r: r["object"]["spec"]["volumes"].append({"name": TOKEN + "zzzzz"}),
    ],
    ids=["a limit", "an annotation", "the namespace", "an image", "another such volume"],
)
def test_whatever_else_differs_is_decided_anew(alike, change):
    first, _ = asked()
    decided(alike, first)
    other = json.loads(first)
    change(other["request"])
    other["request"]["uid"] = str(uuid.uuid4())
    assert decided(alike, compact(other))[1] is False


@pytest.mark.parametrize(
    "more",
    [
        lambda name: {"annotations": {"nvidia.com/use-gputype": name}},
        lambda name: {"annotations": {"note": f'"name":"{name}"'}},
        lambda name: {"labels": {name: "x"}},
    ],
    ids=["a product", "an annotation", "a label"],
)
def test_that_name_anywhere_else_makes_a_pod_its_own(alike, more):
    for end in ("abcde", "fghij"):
        body, _ = asked(end, **more(TOKEN + end))
        assert decided(alike, body)[1] is False


def test_a_container_of_that_name_is_told_in_the_answer_and_so_decided_each_time(alike):
    for end in ("abcde", "fghij"):
        other = json.loads(asked(end)[0])
        other["request"]["object"]["spec"]["containers"][0]["name"] = TOKEN + end
        outcome, known = decided(alike, compact(other))
        assert not known
        assert TOKEN + end in str(outcome.record)


def test_what_the_state_says_anew_is_decided_anew_and_the_stock_is_not_read(alike):
    body, _ = asked()
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
    body, _ = asked()
    decided(alike, body, on)
    assert decided(alike, body, on)[1] is False


def test_a_uid_that_is_none_or_stands_somewhere_else_too_is_not_remembered(alike):
    body, uid = asked()
    for odd in (body.replace(uid.encode(), b"u"), body.replace(b'"image":"x"', f'"image":"{uid}"'.encode())):
        decided(alike, odd)
        assert decided(alike, odd)[1] is False


def test_what_is_remembered_is_bounded_by_bytes():
    alike = Alike(limit=100_000)
    for number in range(300):
        decided(alike, asked(labels={"n": str(number)})[0])
    assert 1 < len(alike._answers) <= 20


def test_a_remembered_answer_is_weighed_on_the_stock_of_the_moment():
    """The replicas of a Deployment are translated once, and each is turned back from the moment on in which none could be served."""
    gate = Gate(None, None, lambda: "")
    bodies = []
    for end in ("abcde", "fghij", "klmno"):
        whole = json.loads(asked(end)[0])
        del whole["request"]["object"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"]
        bodies.append(compact(whole))
    for body in bodies[:2]:
        assert gate.decide("mutate", body, ENFORCE, 5.0).record.outcome == "translated"
    lost = msgspec.structs.replace(ENFORCE, stock=Stock.of(slices=STOCK.slices.values(), nodes=STOCK.nodes.values()))
    outcome = gate.decide("mutate", bodies[2], lost, 5.0)
    assert not json.loads(outcome.body)["response"]["allowed"]
    assert "there is no DeviceClass" in outcome.record.problems[0]
