"""Templates of workloads, created before the first pod."""

import msgspec

from cluster import resources
from dra.stock import Stock
from tests.objects import workload
from tests.waiting import until
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, gpu_pod
from tests.webhook.service.template_cluster import (
    STATE,
    ChangingState,
    RecordingCluster,
    create_pods,
    running,
    translated_pod,
    wait_for_templates,
)
from webhook.refusals import Code
from webhook.state.configuration import DEFAULT, Configuration


async def test_no_template_is_created_for_a_workload_with_impossible_pods():
    """The webhook would refuse the pods. Once the configuration only warns about impossible pods, the template is created."""
    stock = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])
    state = ChangingState("enforce")
    state.set_mode("enforce", stock=stock)  # the only node has four GPUs
    cluster = RecordingCluster()
    async with running(cluster, state):
        await create_deployment(cluster, "impossible", 8)
        await create_deployment(cluster, "possible", 2)
        await wait_for_templates(cluster, 2)
        assert len(cluster.writes) == 1
        lenient = Configuration(msgspec.structs.replace(DEFAULT, impossible="warn"))
        state.set_mode("enforce", stock=stock, configuration=lenient)
        await wait_for_templates(cluster, 2, 8)


async def test_a_workload_refused_for_a_missing_class_is_remembered():
    state = ChangingState("enforce")
    state.set_mode("enforce", stock=Stock.of(slices=[SLICE], classes=[], nodes=[NODE]))
    cluster = RecordingCluster()
    async with running(cluster, state) as controller:
        await create_deployment(cluster, "web", 2)
        await create_deployment(cluster, "gone", 2)

        async def both_are_remembered():
            return {key for _, (_, key) in controller.refused} == {"web", "gone"}

        await until(both_are_remembered)
        assert {refusal.code for refusal in controller.refused.values()} == {Code.NO_CLASS}
        await cluster.delete(resources.DEPLOYMENTS, "gone", "default")
        stock = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])
        lenient = Configuration(msgspec.structs.replace(DEFAULT, impossible="warn"))
        state.set_mode("enforce", stock=stock, configuration=lenient)
        await wait_for_templates(cluster, 2)
        assert controller.refused == {}


async def create_deployment(cluster, name, count):
    deployment = workload("Deployment", name, gpu_pod(limits={"nvidia.com/gpu": str(count)})["spec"], labels={"a": "b"})
    await cluster.create(resources.DEPLOYMENTS, deployment, "default")


async def test_the_template_of_a_workload_precedes_its_first_pod():
    cluster = RecordingCluster()
    async with running(cluster, grace=0.05):
        await create_deployment(cluster, "d", 2)
        await create_pods(cluster, translated_pod())
        await wait_for_templates(cluster, 1, 2)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await wait_for_templates(cluster, 2)  # a sweep has run and kept the template of the workload
        await cluster.delete(resources.DEPLOYMENTS, "d", "default")
        await wait_for_templates(cluster)


async def test_no_template_is_created_for_an_untranslated_workload():
    cluster = RecordingCluster()
    observing = msgspec.structs.replace(
        STATE,
        configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="observe")),
        namespaces={"kube-system": {"drawbridge.dev/mode": "enforce"}},
    )
    async with running(cluster, observing):
        await create_deployment(cluster, "d", 2)
        await create_pods(cluster, translated_pod(namespace="kube-system"))
        await wait_for_templates(cluster, 1)
