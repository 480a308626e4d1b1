"""A namespace with expensive questions waits for its turn; pods of other namespaces do not wait."""

from allocator.service.namespace_turns import AT_ONCE, FREE, MAX_DEBT, NAMESPACES, SHARE, NamespaceTurns
from cluster import resources
from dra.objects import Pod
from dra.wire import convert
from tests.allocator.service.sidecar import (
    DRIVER,
    EXTENDED_RESOURCE_CLASS,
    SettableClock,
    claim,
    device_class,
    fleet,
    gpus,
    loaded,
    node,
    pod,
    pods_with_claims,
    running,
    until,
)
from tests.objects import container


def spend_time(turns, clock, namespace, seconds):
    """Let a question of a namespace take these seconds."""
    clock.now += seconds
    turns.owe(namespace, seconds, seconds)


def test_expensive_questions_of_a_namespace_take_half_the_time():
    """No other namespace waits."""
    clock = SettableClock()
    turns = NamespaceTurns(clock)
    computed = 0
    started_at = clock.now
    while clock.now < started_at + 100:
        if turns.reason_to_wait("hog"):
            clock.now += 0.1
        else:
            spend_time(turns, clock, "hog", 1.0)
            computed += 1
        assert turns.reason_to_wait("team") == ""
    assert 0.9 * SHARE * 100 <= computed <= 1.1 * SHARE * 100


def test_any_number_of_cheap_questions_is_free():
    clock = SettableClock()
    turns = NamespaceTurns(clock)
    for _ in range(10_000):
        spend_time(turns, clock, "team", 0.9 * FREE)
    assert turns.seconds_until("team") == 0


def test_pods_are_retried_in_batches_after_the_debt_is_paid():
    """A namespace whose questions took long owes a debt: the time for which its pods have to wait."""
    clock = SettableClock()
    turns = NamespaceTurns(clock)
    spend_time(turns, clock, "hog", 10.0)
    pods = [convert(pod(f"p{i}", namespace="hog"), Pod) for i in range(AT_ONCE + 2)]
    other_pod = convert(pod("cheap", namespace="team"), Pod)
    assert "take long to evaluate" in turns.reason_to_wait("hog")
    assert turns.next_pods([*pods, other_pod]) == [other_pod]
    clock.now += 10.0 / SHARE
    assert turns.next_pods(pods) == pods[:AT_ONCE]
    assert turns.next_pods(pods[AT_ONCE:]) == pods[AT_ONCE:]


def test_namespace_debts_take_bounded_memory_and_the_largest_is_kept():
    clock = SettableClock()
    turns = NamespaceTurns(clock)
    spend_time(turns, clock, "hog", 1000 * MAX_DEBT)
    for i in range(2 * NAMESPACES):
        spend_time(turns, clock, f"n{i}", 2 * FREE)
    assert len(turns._paid_at) <= NAMESPACES
    assert turns.seconds_until("hog")


def expensive_claim(name, **fields):
    """Return a claim with 32 selectors that take long on any machine; each computes 3,600 sums. `name` ends with a number, so that claims differ."""
    numbers = str(list(range(60)))
    condition = f"{numbers}.all(x, {numbers}.all(y, x + y + {{}} != -{name[1:]})) && device.driver == '{DRIVER}'"
    return claim(name, selectors=[condition.format(i) for i in range(32)], **fields)


async def test_a_cheap_pod_is_answered_while_expensive_pods_wait():
    """The expensive pods are requeued later."""
    names = [f"d{i}" for i in range(1, 41)]  # a quick machine answers more questions before the pods have to wait
    costly_claims = [expensive_claim(name, namespace="hog") for name in names]
    costly_pods = [pod(name, name, namespace="hog") for name in names]
    cluster = loaded(*fleet(1, 41), *costly_claims, *costly_pods, *pods_with_claims("cheap"))
    async with running(cluster, free=FREE) as sidecar:
        seq = sidecar.service.requeue_events.seq
        waiting_pods = set()
        for name in names:
            raw = await cluster.get(resources.PODS.raw, name, "hog")
            answer = (await sidecar.plugin("prefilter", {"pod": raw}))[1]
            if answer["verdict"] == "waiting":
                assert "take long to evaluate" in answer["message"]
                waiting_pods.add(f"hog/{name}")
                if len(waiting_pods) == 3:
                    break
        assert waiting_pods
        assert (await sidecar.prefilter("cheap"))["verdict"] == "fits"
        await until(lambda: waiting_pods & set(sidecar.service.requeue_events.since(seq).pods))


async def test_an_expensive_pod_does_not_get_the_previous_pods_answer():
    """The expensive pod needs a device of a claim and an extended resource. Only n1 has both; the previous pod fits n0."""
    nodes = [node("n0"), node("n1", allocatable={"example.com/gpu": "9"}), gpus("n0", 1), gpus("n1", 1)]
    names = ("d1", "d2")
    containers = [container("c", {"example.com/gpu": "1"})]
    objects = [*map(expensive_claim, names), *(pod(name, name, containers=containers) for name in names)]
    cluster = loaded(device_class(), EXTENDED_RESOURCE_CLASS, *nodes, *objects, *pods_with_claims("plain"))
    async with running(cluster, free=FREE) as sidecar:
        sidecar.service.pods.turns.seconds_until = lambda _: 0.0
        for name in names:
            assert (await sidecar.prefilter("plain"))["verdict"] == "fits"
            answer = await sidecar.prefilter(name)
            assert [fitting["name"] for fitting in answer["nodes"]] == ["n1"], answer
        assert len((await cluster.list(resources.RESOURCE_CLAIMS)).items) == len(names) + 1
