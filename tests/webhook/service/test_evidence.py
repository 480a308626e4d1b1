"""How the webhook reads from a cluster which device plugins and autoscalers are installed, and their configurations: the evidence."""

import asyncio
from contextlib import asynccontextmanager
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
from tests.webhook.service.test_follower import following as synced_follower
from webhook.service.evidence import OF_CLUSTER, OF_NAMESPACES, OF_OPERATORS, read_evidence
from webhook.service.pace import Pace
from webhook.state.builder import StateBuilder
from webhook.state.installed import installed

NAMESPACE = "gpu-operator"
MANIFESTS = Path(__file__).parents[3] / "manifests"
CONFIGURATION = {"evidence": {"namespaces": [NAMESPACE]}}


class ClusterWithPlugins(Embedded):
    """A cluster with objects of device plugins and autoscalers. `errors` maps the plural name of a kind to the error of requests for it."""

    def __init__(self):
        super().__init__()
        self.objects = []
        self.errors = {}
        self.requested = set()

    def _objects_of(self, resource, namespace):
        self.requested.add((resource.plural, namespace))
        if resource.plural in self.errors:
            raise self.errors[resource.plural]
        of_kind = [obj for obj in self.objects if obj["kind"] == resource.kind]
        return [obj for obj in of_kind if namespace in (None, obj["metadata"].get("namespace"))]

    async def list(self, resource, namespace=None, **options):
        if resource.plural not in {kind.plural for kind in (*OF_CLUSTER, *OF_OPERATORS, *OF_NAMESPACES)}:
            return await super().list(resource, namespace, **options)
        return ListPage(tuple(self._objects_of(resource, namespace)), "1")

    async def get(self, resource, name, namespace=None):
        for obj in self._objects_of(resource, namespace):
            if obj["metadata"]["name"] == name:
                return obj
        raise NotFound(name)


@asynccontextmanager
async def following(cluster, **configuration):
    """Yield a function that returns what is installed, the follower and its builder."""
    builder = StateBuilder(configured(**configuration))
    pace = Pace(refresh=0.01, evidence=0.02, evidence_timeout=PATIENCE)
    async with synced_follower(cluster, pace, builder) as follower:
        yield lambda: follower.state().fleet.installed, follower, builder


async def test_evidence_counts_from_the_first_read_until_deletion():
    cluster = ClusterWithPlugins()
    cluster.objects = [pool(), policy(), config_map(any=sharing()), config_map(namespace="team-a", any=sharing(8))]

    async with following(cluster, **CONFIGURATION) as (installation, follower, builder):
        [plugin], [autoscaler] = installation().plugins, installation().autoscalers
        assert plugin.configurations["any"].where == f"ConfigMap {NAMESPACE}/plugin (any)"
        assert autoscaler.pools[0].name == "gpu"
        cluster.objects.pop(0)
        await until(lambda: not installation().autoscalers)
        assert installation().plugins
        builder.configure(configured())
        await until(lambda: not installation().plugins)
        assert follower.unread_evidence() == ""


async def test_a_network_plugins_mounted_config_map_is_read():
    cluster = ClusterWithPlugins()
    pools = {"resourceList": [{"resourceName": "vfs", "selectors": {"vendors": ["15b3"]}}]}
    image = "quay.io/openshift/origin-sriov-network-device-plugin:4.20"
    plugin = daemon_set(image, volume="device-plugin-config", args=["--resource-prefix=a.org", "--token=hunter2"])
    cluster.objects = [plugin, config_map("device-plugin-config", node_1=pools), config_map("other", node_1=pools)]

    async with following(cluster, **CONFIGURATION) as (installation, *_):
        assert list(installation().network.pools) == ["a.org/vfs"]
        cluster.objects.pop(0)
        await until(lambda: not installation().network.pools)


async def test_a_gpucluster_replaces_plugins_only_without_a_clusterpolicy():
    cluster = ClusterWithPlugins()
    cluster.objects = [gpu_cluster(), policy(), config_map(any=sharing())]

    async with following(cluster, **CONFIGURATION) as (installation, *_):
        assert installation().gpu_operator.clusters == ("gpu-cluster",)
        assert installation().plugins
        assert not installation().gpu_operator.runs_driver_alone
        cluster.objects.pop(1)
        await until(lambda: installation().gpu_operator.runs_driver_alone)
        assert not installation().plugins


async def test_without_evidence_namespaces_no_evidence_is_read():
    cluster = ClusterWithPlugins()
    cluster.objects = [pool(), karpenter()]

    async with following(cluster) as (installation, *_):
        await asyncio.sleep(0.1)
        assert not installation().autoscalers
        assert not {plural for plural, _ in cluster.requested} & {"nodepools", "deployments", "configmaps"}


async def test_a_missing_right_is_reported_and_blocks_nothing():
    cluster = ClusterWithPlugins()
    cluster.objects = [scaler("1.31.0") | {"metadata": {"name": "x", "namespace": NAMESPACE}}, policy()]
    cluster.errors = {"nodepools": NotFound("no"), "configmaps": Forbidden("no"), "daemonsets": Forbidden("no")}

    async with following(cluster, **CONFIGURATION) as (installation, follower, _):
        assert [autoscaler.minor for autoscaler in installation().autoscalers] == [31]
        assert follower.unread_evidence().endswith(
            f"not allowed to read daemonsets.apps in {NAMESPACE}, configmaps in {NAMESPACE}"
        )
        cluster.errors["deployments"] = Forbidden("no")
        await until(lambda: not installation().autoscalers)


async def test_evidence_stays_while_the_api_server_does_not_answer():
    cluster = ClusterWithPlugins()
    cluster.objects = [pool()]

    async with following(cluster, **CONFIGURATION) as (installation, follower, _):
        cluster.errors = {"deployments": Unavailable("away")}
        await until(lambda: "away" in follower.unread_evidence())
        assert installation().autoscalers


async def test_only_config_maps_used_by_a_plugin_are_read():
    cluster = ClusterWithPlugins()
    cluster.objects = [CHART, policy(name="of-the-policy")]
    cluster.objects += [
        config_map(name, namespace, any=sharing()) for name in ("plugin", "other") for namespace in (NAMESPACE, "b")
    ]
    read = await read_evidence(cluster, [NAMESPACE, "b"], for_command=True)
    maps = [obj["metadata"] for obj in read.objects if obj["kind"] == "ConfigMap"]
    assert maps == [{"namespace": NAMESPACE, "name": "plugin"}]
    assert {namespace for _, namespace in cluster.requested} == {None, NAMESPACE, "b"}


async def test_handler_and_nodes_of_a_runtime_class_are_read():
    cluster = ClusterWithPlugins()
    cluster.objects = [
        runtime("cards", "nvidia", nodeSelector={"pool": "old"}) | {"overhead": {"podFixed": {"cpu": "1"}}}
    ]
    read = await read_evidence(cluster, [NAMESPACE])
    assert "overhead" not in read.objects[0]
    runtime_class = installed(read.objects).runtimes["cards"]
    assert (runtime_class.handler, runtime_class.node_selector) == ("nvidia", {"pool": "old"})


async def test_some_kinds_of_operators_are_read_only_for_commands():
    cluster = ClusterWithPlugins()
    cluster.objects = [device_config(), gpu_cluster()]
    for for_command, kinds in ((False, ["GPUCluster"]), (True, ["GPUCluster", "DeviceConfig"])):
        read = await read_evidence(cluster, [NAMESPACE], for_command=for_command)
        assert [obj["kind"] for obj in read.objects] == kinds


@pytest.mark.parametrize(
    ("file", "kinds"), [("survey/role.yaml", (*OF_CLUSTER, *OF_OPERATORS)), ("evidence/cluster.yaml", OF_CLUSTER)]
)
def test_the_cluster_roles_allow_listing_every_kind_of_evidence(file, kinds):
    role = next(
        document.object for document in read_files([MANIFESTS / file]) if document.object["kind"] == "ClusterRole"
    )
    # The rule with resourceNames is for drawbridge's own configuration, not for objects of device plugins or autoscalers.
    rules = [rule for rule in role["rules"] if "resourceNames" not in rule]
    verbs_by_kind = {(group, plural): rule["verbs"] for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}  # fmt: skip
    assert {(kind.group, kind.plural) for kind in kinds} <= verbs_by_kind.keys()
    evidence_groups = {"amd.com", "deviceplugin.intel.com", "karpenter.sh", "mellanox.com", "node.k8s.io", "nvidia.com"}
    evidence_groups.add("sriovnetwork.openshift.io")
    assert {(group, plural) for group, plural in verbs_by_kind if group in evidence_groups} == {
        (kind.group, kind.plural) for kind in kinds
    }
    assert set(map(tuple, verbs_by_kind.values())) == {("list",)}
