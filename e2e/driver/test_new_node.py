"""A node that is drained, or recreated with other devices, and a driver between two API servers."""

import contextlib

import pytest

from e2e.actors import fleet
from e2e.actors.client import Client
from e2e.actors.proxy import Proxy
from e2e.actors.workloads import request, template, using_template
from e2e.driver.installed import GPU, claiming_pod, device_variables, installed_driver, until_freed
from e2e.ground.addresses import free_port
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import KUBELET, Node

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(420)]

DRIVER = "new.example.com"
CLASS = "e2e-new-node"
NS = "default"


def gpus(**uuids):
    return {"gpus": [GPU | {"name": name.replace("_", "-"), "uuid": uuid} for name, uuid in uuids.items()]}


@pytest.fixture(scope="module")
def own_node():
    """A control plane whose node may be deleted."""
    with ControlPlane(name="new-node") as cp:
        cp.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), template("one", NS, request("r", CLASS)))
        yield Node(cp).start()


def node_of(cp, name):
    return cp.read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def offered_devices(driver):
    return sorted(device["name"] for item in driver.slices() for device in item["spec"].get("devices", ()))


def owners(driver):
    return {owner["uid"] for item in driver.slices() for owner in item["metadata"]["ownerReferences"]}


def create_pods(node, *names):
    node.cluster.create(*(claiming_pod(NS, name, node.name, [using_template("one")]) for name in names))


def runs_or_is_created(node, name):
    """Return whether a pod runs; create it again if it was evicted: kube-controller-manager may see the end of a taint after kube-scheduler."""
    pod = node.cluster.read({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS}})
    if not pod:
        create_pods(node, name)
    return bool(pod) and pod["status"]["phase"] == "Running"


def device_of(driver, name):
    [value] = [value for key, value in device_variables(driver, NS, name).items() if key != "card"]
    return value


def delete_pods(node, *names):
    for name in names:
        path = f"/api/v1/namespaces/{NS}/pods/{name}"
        if node.cluster.read({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS}}):
            node.cluster.delete(path, gracePeriodSeconds=0)


@pytest.mark.parametrize("disk", ["kept", "wiped"])
def test_a_recreated_node_offers_only_its_new_devices(own_node, disk):
    """The pods of the old node are still bound to the new node until they are deleted."""
    cp = own_node.cluster
    with installed_driver(own_node, DRIVER, gpus(gpu_0="OLD-0", gpu_1="OLD-1")) as driver:
        create_pods(own_node, "a", "b")
        assert sorted(device_of(driver, name) for name in ("a", "b")) == ["OLD-0", "OLD-1"]
        old = node_of(cp, own_node.name)["metadata"]["uid"]
        driver.running.stop(hard=True)
        own_node.kubelet.stop()
        cp.delete(f"/api/v1/nodes/{own_node.name}")
        if disk == "wiped":
            own_node.box.run("rm", "-rf", f"{KUBELET}/plugins/{DRIVER}", f"{KUBELET}/dra_manager_state")
        own_node.kubelet = own_node.spawn("kubelet", own_node.kubelet_argv)
        new = cp.until("the node is there again", lambda: node_of(cp, own_node.name))["metadata"]["uid"]
        assert new != old
        driver.offer(gpus(gpu_1="NEW-1", gpu_5="NEW-5"))
        driver.start()
        cp.until("the slices have only the new devices", lambda: offered_devices(driver) == ["gpu-1", "gpu-5"], 60)
        cp.until("the new node owns the slices", lambda: owners(driver) == {new}, 60)
        delete_pods(own_node, "a", "b")
        until_freed(driver, set())
        create_pods(own_node, "c", "d")
        assert sorted(device_of(driver, name) for name in ("c", "d")) == ["NEW-1", "NEW-5"]
        delete_pods(own_node, "c", "d")
        until_freed(driver, set())


def test_a_running_driver_publishes_again_after_its_node_is_recreated(own_node):
    cp = own_node.cluster
    with installed_driver(own_node, DRIVER, gpus(gpu_0="GPU-0")) as driver:
        cp.delete(f"/api/v1/nodes/{own_node.name}")
        cp.until("the slices are gone", lambda: not driver.slices(), 60)
        own_node.restart_kubelet()
        new = cp.until("the node is there again", lambda: node_of(cp, own_node.name))["metadata"]["uid"]
        cp.until(
            "the slices have the device and belong to the new node",
            lambda: offered_devices(driver) == ["gpu-0"] and owners(driver) == {new},
            60,
        )
        create_pods(own_node, "e")
        assert device_of(driver, "e") == "GPU-0"
        delete_pods(own_node, "e")
        until_freed(driver, set())


def test_a_node_with_a_no_execute_taint_frees_its_devices(own_node):
    cp = own_node.cluster
    path = f"/api/v1/nodes/{own_node.name}"
    with installed_driver(own_node, DRIVER, gpus(gpu_0="GPU-0")) as driver:
        create_pods(own_node, "g")
        assert device_of(driver, "g") == "GPU-0"
        cp.patch(path, {"spec": {"taints": [{"key": "example.com/repair", "effect": "NoExecute"}]}})
        until_freed(driver, set())
        create_pods(own_node, "h")
        cp.wait_unschedulable(NS, "h")
        assert offered_devices(driver) == ["gpu-0"]
        cp.patch(path, {"spec": {"taints": None}})
        cp.until("h runs", lambda: runs_or_is_created(own_node, "h"), 90)
        assert device_of(driver, "h") == "GPU-0"
        delete_pods(own_node, "h")
        until_freed(driver, set())


def test_a_driver_misses_nothing_when_it_changes_the_api_server(own_node):
    """The Service `kubernetes` may also connect a driver to another API server, which has its own watch cache and its own watches."""
    cp = own_node.cluster
    port = free_port()
    new_arguments = {f"--secure-port={cp.port}": f"--secure-port={port}"}
    second = cp.spawn(
        "kube-apiserver-2", [new_arguments.get(str(argument), argument) for argument in cp.apiserver.argv]
    )
    first = cp.address, cp.port
    proxy = Proxy(cp.url, cp.ca, cp.token)
    kubeconfig = cp.write_kubeconfig("driver-by-proxy", cp.token, f"http://127.0.0.1:{proxy.port}")
    cluster_of_second = contextlib.closing(Client(f"https://{cp.address}:{port}", cp.token, cp.ca))
    with (
        contextlib.closing(proxy),
        cluster_of_second as other,
        installed_driver(own_node, DRIVER, gpus(gpu_0="GPU-0"), kubeconfig=kubeconfig) as driver,
    ):
        cp.until("the second API server is ready", lambda: other.get("/readyz") == "ok", 60)
        for number, (target, other_server) in enumerate([((cp.address, port), cp), (first, other)]):
            proxy.target = target
            proxy.cuts += 1
            [slice_] = driver.slices()
            other_server.delete(f"/apis/resource.k8s.io/v1/resourceslices/{slice_['metadata']['name']}")
            cp.until("another slice is published", driver.slices, 60)
            create_pods(own_node, f"f{number}")
            assert device_of(driver, f"f{number}") == "GPU-0"
            delete_pods(own_node, f"f{number}")
            until_freed(driver, set())
    second.stop(hard=True)
