"""One device on a real node, offered by a device plugin and by a driver at once: the node agent prevents that two pods use
the device, or else reports it."""

import contextlib
import json
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.manifests import parse
from e2e.actors import fleet
from e2e.actors.client import ApiError, Client
from e2e.actors.taints import until_taint_rules_are_followed
from e2e.actors.workloads import container, limits, pod, request, template, using_template
from e2e.driver.installed import GPU, PROGRAM, claiming_pod, device_variables, installed_driver, until_freed
from e2e.ground.controlplane import free_port
from e2e.ground.node import KUBELET
from tests.cli.running import run_manifests

pytestmark = [pytest.mark.real, pytest.mark.node]

DRIVER = "silicon.example.com"
CLASS = "e2e-silicon"
RESOURCE = "example.com/resource"  # the sample plugin's, with the devices Dev-1 and Dev-2
DEVICES = {"Dev-1": "gpu-0", "Dev-2": "gpu-1"}
PARTS = {"gpus": [GPU | {"name": name, "uuid": uuid} for uuid, name in DEVICES.items()]}
ACCOUNT = "drawbridge-node-agent"
CONDITION = "DrawbridgeDevicesConsistent"
CONDITIONS = Path(__file__).parents[2] / "manifests/node-condition/role.yaml"
# The container ends on SIGTERM, so that its devices are freed at once.
HOLD = "ls /tmp; echo spoken=yes; trap 'exit 0' TERM; sleep 600 & wait"


class Agent:
    """The agent on a node, with exactly the rights of the manifests."""

    def __init__(self, node, namespace):
        self.node, self.cluster = node, node.cluster
        self.base_namespace, self.namespace = namespace, f"{namespace}-nodes"
        self.port = free_port()

    def rights(self):
        """The objects that `drawbridge manifests` prints for the agent, without its DaemonSet: a namespace, an account and its rights."""
        printed = run_manifests("--image", "x", nodeAgent=True, namespace=self.base_namespace).stdout
        objects = [document.object for document in parse(printed)]
        objects_of_agent = [obj for obj in objects if obj["metadata"]["name"].startswith((ACCOUNT, self.namespace))]
        condition = CONDITIONS.read_text(encoding="utf-8").replace("drawbridge-system-nodes", self.namespace)
        objects_of_agent += [document.object for document in parse(condition)]
        return [item for item in objects_of_agent if item["kind"] != "DaemonSet"]

    def start(self):
        """Run with a token that is bound to a pod of the node."""
        item = pod("agent", self.namespace, container(), node=self.node.name)
        item["spec"]["serviceAccountName"] = ACCOUNT
        [pod_] = self.cluster.create(item)
        self.cluster.wait_phase(self.namespace, "agent", "Running", seconds=60)
        self.token = self.token_of(pod_)
        self.kubeconfig = self.cluster.write_kubeconfig("node-agent", self.token)
        self.mount(pod_)
        self.running = self.node.spawn(
            "node-agent", [*self.command(), "--condition", "--metrics-listen", f"127.0.0.1:{self.port}"]
        )

    def token_of(self, agent_pod, **spec):
        """A token as the kubelet mounts it into a pod."""
        return self.cluster.token_of(self.namespace, ACCOUNT, agent_pod, **spec)

    def mount(self, agent_pod):
        """Create the other files that the agent's pod would mount; this agent has none."""

    def command(self):
        return [
            PROGRAM, "node-agent", "--node-name", self.node.name, "--kubelet-dir", KUBELET, "--cdi-dir", "/run/cdi",
            "--kubeconfig", self.kubeconfig,
        ]  # fmt: skip

    def marked_devices(self):
        items = self.cluster.get("/apis/resource.k8s.io/v1/devicetaintrules", labelSelector="drawbridge.dev/marked-on")
        return sorted(rule["spec"]["deviceSelector"]["device"] for rule in items["items"])

    def has_marked(self, *devices):
        self.running.check()
        return self.marked_devices() == sorted(devices)

    def events_of(self, namespace, **selectors):
        """Return the messages of the agent's events."""
        fields = ",".join(f"{name}={value}" for name, value in {"reason": "DeviceGivenTwice", **selectors}.items())
        items = self.cluster.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=fields)["items"]
        return [item["message"] for item in items]

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def holders(self, namespace):
        """Return which container has which device, from the metrics."""
        families = {family.name: family for family in text_string_to_metric_families(self.metrics())}
        samples = families["drawbridge_node_container_device"].samples
        return [sample.labels for sample in samples if sample.labels["namespace"] == namespace]

    def once(self):
        """Return the findings of one examination of the node."""
        command = [*self.node.box.enter(), *map(str, self.command()), "--once", "-o", "json"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def node_agent(control_plane, node_cluster):
    """The agent, on a node where our driver publishes two devices, which a device plugin offers, too."""
    namespace = control_plane.namespace("silicon")
    class_ = fleet.device_class(CLASS, f"device.driver == '{DRIVER}'")
    agent = Agent(node_cluster, namespace)
    with contextlib.ExitStack() as stack:
        stack.callback(control_plane.delete, f"/api/v1/namespaces/{namespace}")
        objects = [class_, *agent.rights()]
        control_plane.create(*objects)
        stack.callback(control_plane.remove, *objects)
        start_all(agent, stack)
        yield agent


def start_all(agent, stack):
    """Start the agent, the plugin that offers the devices, and our driver, which publishes the same devices."""
    node = agent.node
    agent.start()
    stack.callback(agent.running.stop)
    # The node advertises devices of a stopped plugin for a moment, and a pod that gets one finds no plugin.
    agent.cluster.until(
        "the node offers no device of a plugin", lambda: node.allocatable().get(RESOURCE, "0") == "0", 60
    )
    plugin = node.start_device_plugin()
    stack.callback(plugin.stop)
    agent.driver = stack.enter_context(installed_driver(node, DRIVER, PARTS))
    agent.cluster.until("the node offers the plugin's two devices", lambda: node.allocatable().get(RESOURCE) == "2", 60)


def plugin_pod(namespace, name):
    """A pod that requests devices of a device plugin."""
    return pod(name, namespace, container(command=HOLD, **limits(**{RESOURCE: 1})))


def device_of(node_agent, namespace, name):
    """The device that the plugin gave to a pod."""
    node_agent.cluster.wait_phase(namespace, name, "Running", seconds=90)
    [device] = node_agent.node.output_of(namespace, name).split()
    return device


def delete_pods(node_agent, namespace, *names):
    for name in names:
        node_agent.cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=1)


def is_unschedulable(cluster, namespace, name):
    status = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    return any(condition.get("reason") == "Unschedulable" for condition in status.get("conditions", ()))


def test_claims_get_no_device_of_a_plugin_pod(control_plane, node_agent, namespace, created):
    created(plugin_pod(namespace, "old"), template("t", namespace, request("r", CLASS)))
    held = device_of(node_agent, namespace, "old")
    control_plane.until(
        "the device that the plugin gave away has a taint rule", lambda: node_agent.has_marked(DEVICES[held])
    )
    until_taint_rules_are_followed(control_plane)
    other = (DEVICES.keys() - {held}).pop()
    created(claiming_pod(namespace, "a", "", [using_template("t")]))
    assert device_variables(node_agent.driver, namespace, "a")[variable(other)] == other
    control_plane.until("the metrics have both containers", lambda: len(node_agent.holders(namespace)) == 2, 60)
    holders = {holder["pod"]: holder for holder in node_agent.holders(namespace)}
    assert (holders["old"]["resource"], holders["old"]["uuid"], holders["old"]["container"]) == (RESOURCE, held, "main")
    assert (holders["a"]["driver"], holders["a"]["device"], holders["a"]["uuid"]) == (DRIVER, DEVICES[other], other)
    created(claiming_pod(namespace, "b", "", [using_template("t")]))
    control_plane.until("the second pod is unschedulable", lambda: is_unschedulable(control_plane, namespace, "b"))
    assert node_agent.marked_devices() == [DEVICES[held]]
    delete_pods(node_agent, namespace, "old")
    assert device_variables(node_agent.driver, namespace, "b")[variable(held)] == held
    assert node_agent.marked_devices() == []
    delete_pods(node_agent, namespace, "a", "b")
    until_freed(node_agent.driver, set())


def variable(uuid):
    return f"DRAWBRIDGE_DEVICE_{DEVICES[uuid].upper().replace('-', '_')}"


def test_a_device_held_by_claim_and_plugin_is_reported(control_plane, node_agent, namespace, created):
    """A device plugin does not know claims, so this cannot be prevented, only reported."""
    created(
        template("t", namespace, request("r", CLASS, count=2)),
        claiming_pod(namespace, "new", "", [using_template("t")]),
    )
    assert len(device_variables(node_agent.driver, namespace, "new")) == 3
    created(plugin_pod(namespace, "old"))
    device_of(node_agent, namespace, "old")
    node = {"involvedObject.kind": "Node", "involvedObject.name": node_agent.node.name}
    [message] = control_plane.until(
        "the node has an event about the device", lambda: node_agent.events_of("default", **node), 60
    )
    assert f"{namespace}/old" in message
    for name in ("old", "new"):
        [message_of_pod] = control_plane.until("each pod has an event about the device", lambda n=name: node_agent.events_of(namespace, **{"involvedObject.name": n}))  # fmt: skip
        assert "is in use twice" in message_of_pod
    assert 'drawbridge_node_findings{what="given twice"} 1.0' in node_agent.metrics()
    assert "O221" in {finding["code"] for finding in node_agent.once()["findings"]}
    command = [PROGRAM, "doctor", "-o", "json", "--kubeconfig", control_plane.kubeconfig]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ("O221", f"Node/{node_agent.node.name}") in {(finding["code"], finding["object"]) for finding in json.loads(done.stdout)["findings"]}  # fmt: skip
    delete_pods(node_agent, namespace, "old", "new")
    control_plane.until(
        "the node's event says that it is over", lambda: node_agent.events_of("default", **node) == ["it is over"], 60
    )
    control_plane.until("no taint rule is left", node_agent.has_marked, 60)
    until_freed(node_agent.driver, set())


def node_conditions(node_agent):
    conditions = node_agent.cluster.get(f"/api/v1/nodes/{node_agent.node.name}")["status"]["conditions"]
    return {condition["type"]: condition for condition in conditions}


def test_the_agent_sets_its_node_condition_and_nothing_else(control_plane, node_agent):
    """The agent has the role of the manifest; the policy refuses everything else that the role would allow."""
    condition = control_plane.until(
        "the node has the agent's condition", lambda: node_conditions(node_agent).get(CONDITION), 60
    )
    assert condition["status"] in ("True", "False")
    assert node_conditions(node_agent)["Ready"]["status"] == "True"
    own_condition = {"status": {"conditions": [{"type": CONDITION, "status": "True", "reason": "Tried"}]}}
    assert refusal(node_agent, node_agent.node.name, own_condition) == ""
    changes = {
        "another condition": {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "one of its own": {"status": {"conditions": [{"type": "Mine", "status": "True"}]}},
        "capacity": {"status": {"capacity": {"example.com/mine": "1"}}},
        "a label": {"metadata": {"labels": {"example.com/mine": "yes"}}},
        "an annotation": {"metadata": {"annotations": {"example.com/mine": "yes"}}},
    }
    for change, body in changes.items():
        assert "and nothing else of a node" in refusal(node_agent, node_agent.node.name, body), (
            f"the agent may set {change}"
        )


def test_the_agent_may_not_set_the_condition_of_another_node(node_agent, created):
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere-condition"}})
    body = {"status": {"conditions": [{"type": CONDITION, "status": "True"}]}}
    assert "and nothing else of a node" in refusal(node_agent, "elsewhere-condition", body)


def refusal(node_agent, node, body):
    """Patch a node's status with the agent's token in a dry run; return the refusal, or ""."""
    client = Client(node_agent.cluster.url, node_agent.token, node_agent.cluster.ca)
    try:
        client.patch(f"/api/v1/nodes/{node}/status", body, "strategic", dryRun="All")
    except ApiError as error:
        return str(error)
    finally:
        client.close()
    return ""


RULE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "drawbridge-held-x"},
}


@pytest.mark.parametrize(
    ("pool", "changes"),
    [
        (None, {}),
        ("another-node", {}),
        (None, {"effect": "NoExecute"}),
        (None, {"key": "example.com/mine"}),
        (None, {"device": ""}),
        (None, {"owner": "another-node"}),
        (None, {"name": "somebodys-rule"}),
    ],
    ids=["its own", "another pool", "evicting", "another key", "all devices", "another owner", "another name"],
)
def test_the_agent_may_taint_only_single_devices_of_its_node(control_plane, node_agent, pool, changes):
    node = node_agent.node.name
    owner = control_plane.get(f"/api/v1/nodes/{node}")["metadata"]
    selector = {"driver": DRIVER, "pool": pool or node, "device": changes.get("device", "gpu-0")}
    rule = {
        **RULE,
        "metadata": {
            "name": changes.get("name", "drawbridge-held-x"),
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": changes.get("owner", node), "uid": owner["uid"]}
            ],
        },
        "spec": {
            "deviceSelector": {key: value for key, value in selector.items() if value},
            "taint": {
                "key": changes.get("key", "drawbridge.dev/device-plugin"),
                "effect": changes.get("effect", "NoSchedule"),
            },
        },
    }
    result = apply_as(node_agent, rule)
    if pool is None and not changes:
        assert result.returncode == 0, result.stderr
    else:
        assert result.returncode != 0
        assert "may mark single devices of the node that it runs on" in result.stderr


def apply_as(node_agent, rule):
    """Create an object with the agent's token in a dry run."""
    arguments = [
        "create",
        "--dry-run=server",
        "--validate=false",
        "-f",
        "-",
        "--kubeconfig",
        str(node_agent.kubeconfig),
    ]
    return node_agent.cluster.kubectl(*arguments, input=json.dumps(rule), check=False)


def test_the_agent_may_not_delete_taint_rules_of_others(control_plane, node_agent, created):
    rule = {
        **RULE,
        "metadata": {"name": "drawbridge-held-elsewhere"},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": "another-node", "device": "gpu-0"}, "taint": {"key": "drawbridge.dev/device-plugin", "effect": "NoSchedule"}},
    }  # fmt: skip
    created(rule)
    result = node_agent.cluster.kubectl("delete", "devicetaintrule", "drawbridge-held-elsewhere", "--wait=false", "--kubeconfig", str(node_agent.kubeconfig), check=False)  # fmt: skip
    assert result.returncode != 0
    assert "no others" in result.stderr
