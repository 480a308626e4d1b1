"""How the webhook reads the installation of device plugins and autoscalers from a cluster."""

import asyncio
from pathlib import Path

import pytest

from cluster.embedded import Embedded
from cluster.errors import Forbidden, NotFound, Unavailable
from cluster.manifests import read as read_files
from cluster.protocol import ListPage
from tests.corpus.move.autoscaled import karpenter, pool, scaler
from tests.corpus.move.plugins import CHART, config_map, daemon_set, device_config, gpu_cluster, policy, sharing
from tests.corpus.move.visible import runtime
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.pods import configured
from webhook.service.evidence import OF_CLUSTER, OF_NAMESPACES, OF_OPERATORS, read_evidence
from webhook.service.follower import Follower
from webhook.service.pace import Pace
from webhook.state.builder import StateBuilder
from webhook.state.installed import installed

HOME = "gpu-operator"
MANIFESTS = Path(__file__).parents[3] / "manifests"
CONFIGURATION = {"evidence": {"namespaces": [HOME]}}


class Installed(Embedded):
    """A cluster with objects of device plugins and autoscalers; `fails` maps a plural to the error of its requests."""

    def __init__(self):
        super().__init__()
        self.there = []
        self.fails = {}
        self.asked = set()

    def _of(self, resource, namespace):
        self.asked.add((resource.plural, namespace))
        if resource.plural in self.fails:
            raise self.fails[resource.plural]
        kinds = [obj for obj in self.there if obj["kind"] == resource.kind]
        return [kind for kind in kinds if namespace in (None, kind["metadata"].get("namespace"))]

    async def list(self, resource, namespace=None, **more):
        if resource.plural not in {kind.plural for kind in (*OF_CLUSTER, *OF_OPERATORS, *OF_NAMESPACES)}:
            return await super().list(resource, namespace, **more)
        return ListPage(tuple(self._of(resource, namespace)), "1")

    async def get(self, resource, name, namespace=None):
        for obj in self._of(resource, namespace):
            if obj["metadata"]["name"] == name:
                return obj
        raise NotFound(name)


async def following(cluster, check, **configuration):
    world = StateBuilder(configured(**configuration))
    follower = Follower(cluster, world, Pace(refresh=0.01, evidence=0.02, evidence_timeout=PATIENCE))
    task = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await follower.wait_for_sync()
            await check(lambda: follower.state().fleet.installed, follower, world)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_evidence_counts_from_the_first_read_until_it_is_gone():
    cluster = Installed()
    cluster.there = [pool(), policy(), config_map(any=sharing()), config_map(namespace="team-a", any=sharing(8))]

    async def check(known, follower, world):
        [plugin], [scaler] = known().plugins, known().autoscalers
        assert plugin.configurations["any"].where == f"ConfigMap {HOME}/plugin (any)"
        assert scaler.pools[0].name == "gpu"
        cluster.there.pop(0)
        await until(lambda: not known().autoscalers)
        assert known().plugins
        world.configure(configured())
        await until(lambda: not known().plugins)
        assert follower.unread_evidence() == ""

    await following(cluster, check, **CONFIGURATION)


async def test_a_network_plugins_mounted_config_map_is_read():
    cluster = Installed()
    pools = {"resourceList": [{"resourceName": "vfs", "selectors": {"vendors": ["15b3"]}}]}
    image = "quay.io/openshift/origin-sriov-network-device-plugin:4.20"
    mounts = daemon_set(image, volume="device-plugin-config", args=["--resource-prefix=a.org", "--token=hunter2"])
    cluster.there = [mounts, config_map("device-plugin-config", node_1=pools), config_map("other", node_1=pools)]

    async def check(known, follower, world):
        assert list(known().network.pools) == ["a.org/vfs"]
        cluster.there.pop(0)
        await until(lambda: not known().network.pools)

    await following(cluster, check, **CONFIGURATION)


async def test_a_gpu_cluster_beside_a_cluster_policy_replaces_no_plugin():
    cluster = Installed()
    cluster.there = [gpu_cluster(), policy(), config_map(any=sharing())]

    async def check(known, *_):
        assert known().gpu_operator.clusters == ("gpu-cluster",)
        assert known().plugins
        assert not known().gpu_operator.runs_driver_alone
        cluster.there.pop(1)
        await until(lambda: known().gpu_operator.runs_driver_alone)
        assert not known().plugins

    await following(cluster, check, **CONFIGURATION)


async def test_without_a_declaration_no_evidence_is_read():
    cluster = Installed()
    cluster.there = [pool(), karpenter()]

    async def check(known, *_):
        await asyncio.sleep(0.1)
        assert not known().autoscalers
        assert not {plural for plural, _ in cluster.asked} & {"nodepools", "deployments", "configmaps"}

    await following(cluster, check)


async def test_a_missing_right_is_reported_and_blocks_nothing():
    cluster = Installed()
    cluster.there = [scaler("1.31.0") | {"metadata": {"name": "x", "namespace": HOME}}, policy()]
    cluster.fails = {
        "nodepools": NotFound("no such kind"),
        "configmaps": Forbidden("no"),
        "daemonsets": Forbidden("no"),
    }

    async def check(known, follower, _):
        assert [autoscaler.minor for autoscaler in known().autoscalers] == [31]
        assert follower.unread_evidence().endswith(
            f"not allowed to read daemonsets.apps in {HOME}, configmaps in {HOME}"
        )
        cluster.fails["deployments"] = Forbidden("no")
        await until(lambda: not known().autoscalers)

    await following(cluster, check, **CONFIGURATION)


async def test_evidence_stays_while_the_api_server_does_not_answer():
    cluster = Installed()
    cluster.there = [pool()]

    async def check(known, follower, _):
        cluster.fails = {"deployments": Unavailable("away")}
        await until(lambda: "away" in follower.unread_evidence())
        assert known().autoscalers

    await following(cluster, check, **CONFIGURATION)


async def test_only_config_maps_used_by_a_plugin_are_read():
    cluster = Installed()
    cluster.there = [CHART, policy(name="of-the-policy"), karpenter() | {"metadata": {"name": "k", "namespace": HOME}}]
    cluster.there += [config_map(name, where, any=sharing()) for name in ("plugin", "other") for where in (HOME, "b")]
    read = await read_evidence(cluster, [HOME, "b"], for_command=True)
    maps = [obj["metadata"] for obj in read.objects if obj["kind"] == "ConfigMap"]
    assert maps == [{"namespace": HOME, "name": "plugin"}]
    assert {where for _, where in cluster.asked} == {None, HOME, "b"}


async def test_handler_and_nodes_of_a_runtime_class_count():
    cluster = Installed()
    cluster.there = [
        runtime("cards", "nvidia", nodeSelector={"pool": "old"}) | {"overhead": {"podFixed": {"cpu": "1"}}}
    ]
    read = await read_evidence(cluster, [HOME])
    assert "overhead" not in read.objects[0]
    runtime_class = installed(read.objects).runtimes["cards"]
    assert (runtime_class.handler, runtime_class.node_selector) == ("nvidia", {"pool": "old"})


async def test_operators_are_read_for_commands_alone():
    cluster = Installed()
    cluster.there = [device_config(), gpu_cluster()]
    for for_command, kinds in ((False, ["GPUCluster"]), (True, ["GPUCluster", "DeviceConfig"])):
        read = await read_evidence(cluster, [HOME], for_command=for_command)
        assert [obj["kind"] for obj in read.objects] == kinds


@pytest.mark.parametrize(
    ("file", "kinds"), [("survey/role.yaml", (*OF_CLUSTER, *OF_OPERATORS)), ("evidence/cluster.yaml", OF_CLUSTER)]
)
def test_the_cluster_roles_allow_listing_every_kind_of_evidence(file, kinds):
    role = next(
        document.object for document in read_files([MANIFESTS / file]) if document.object["kind"] == "ClusterRole"
    )
    # The rule with resourceNames is for drawbridge's own configuration, which is no evidence.
    rules = [rule for rule in role["rules"] if "resourceNames" not in rule]
    given = {(group, plural): rule["verbs"] for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}  # fmt: skip
    assert {(kind.group, kind.plural) for kind in kinds} <= given.keys()
    others = {"amd.com", "deviceplugin.intel.com", "karpenter.sh", "mellanox.com", "node.k8s.io", "nvidia.com"}
    others.add("sriovnetwork.openshift.io")
    assert {name for name in given if name[0] in others} == {(kind.group, kind.plural) for kind in kinds}
    assert set(map(tuple, given.values())) == {("list",)}


@pytest.mark.parametrize("names", [["Kube_System"], ["../../nodes"], [f"n-{n}" for n in range(17)]])
def test_invalid_or_too_many_evidence_namespaces_are_rejected(names):
    with pytest.raises(AssertionError):
        configured(evidence={"namespaces": names})
