"""The admission policies of manifests/guards: each allows its accounts, and refuses an account that has only Kubernetes' rights."""

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.page import follow
from e2e.actors.webhook import ROOT, SYSTEM
from e2e.actors.workloads import acting_pod, claim, pod, request, template, using

pytestmark = pytest.mark.real
DRIVER = "guarded.example.com"
CLASS = "guarded"
NODES = ("guarded-0", "guarded-1")
PLUGIN = f"system:serviceaccount:{SYSTEM}:guarded-plugin"
CONTROLLER = f"system:serviceaccount:{SYSTEM}:guarded-controller"
TENANT = "guarded-tenant"  # has all of Kubernetes' rights that the guards concern, but no right of the guards
MAY = "guarded-may"  # has the guards' rights, too
ADMIN = {"resource.kubernetes.io/admin-access": "true"}  # the label of a namespace that Kubernetes' own check requires
VERBS = ["get", "list", "create", "update", "patch", "delete"]
EVERYTHING = [
    {"apiGroups": [""], "resources": ["pods", "pods/binding", "bindings"], "verbs": VERBS},
    {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": VERBS},
]


def shipped():
    """The component's objects, with lists for the driver of this file."""
    made = []
    for file in ("lists.yaml", "policies.yaml", "rbac.yaml"):
        made += [document.object for document in manifests.read([ROOT / "manifests/guards" / file])]
    for obj in made:
        if obj["kind"] == "ConfigMap":
            obj["metadata"]["namespace"] = SYSTEM
            writers = f"{PLUGIN}\n  {CONTROLLER} anywhere\n"
            obj["data"] = {DRIVER: writers if obj["metadata"]["name"] == "drawbridge-slice-writers" else ""}
    return made


def role(name, rules, *subjects):
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    base = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    bound = [{"kind": "ServiceAccount", "name": subject, "namespace": SYSTEM} for subject in subjects]
    return [base | {"kind": "ClusterRole", "rules": rules}, base | {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": bound}]  # fmt: skip


def account(name):
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM}}


@pytest.fixture(scope="module")
def guards(control_plane):
    """The guards in force, two nodes, and accounts."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    if control_plane.read(namespace) is None:
        control_plane.namespace(SYSTEM)
    rights = [{"apiGroups": ["drawbridge.dev"], "resources": ["manageddevices", "managedpods", "adminaccess"], "verbs": ["allocate", "bind", "use"]}]  # fmt: skip
    accounts = (TENANT, MAY, "guarded-plugin", "guarded-controller")
    made = [
        *map(account, accounts),
        *role("guarded-everything", EVERYTHING, *accounts),
        *role("guarded-may", rights, MAY),
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODES[0], [fleet.device("gpu-0", {})], pool=NODES[0], by_name=True),
    ]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    rules = shipped()
    tried = control_plane.namespace("guarded-tried", ADMIN)
    try:
        control_plane.add_fake_nodes(2, prefix="guarded-")
        control_plane.create(*made, claim("tried", tried, request("gpu", CLASS)))
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(rules))
        with acting(control_plane, TENANT) as tenant, acting(control_plane, MAY) as allowed:
            control_plane.until("all guards are in force", lambda: are_in_force(tenant, allowed, tried), 60)
        yield control_plane
    finally:
        control_plane.delete(f"/api/v1/namespaces/{tried}")
        control_plane.remove(*reversed(rules), *reversed(made), *nodes)


def acting(cluster, name, node=""):
    """A client with the token of an account. With `node`, the token is bound to a pod on this node."""
    return cluster.client_of(SYSTEM, name, acting_pod(f"{name}-{node}", SYSTEM, name, nodeName=node) if node else None)


def refusal(attempt, *arguments, **query):
    """Return the API server's refusal of a dry run; "" if it accepts it."""
    try:
        attempt(*arguments, dryRun="All", **query)
    except ApiError as error:
        if error.code != 403:
            raise
        return error.message
    return ""


# The attempts, all of them dry runs


def slice_(node, driver=DRIVER, pool=""):
    [made] = fleet.slices(
        driver, node or NODES[0], [fleet.device("gpu-0", {})], pool=pool or node or "all", by_name=True
    )
    made["metadata"]["name"] = f"tried-{node or 'all'}"
    if not node:
        del made["spec"]["nodeName"]
        made["spec"]["allNodes"] = True
    return made


def admin(kind, namespace, **more):
    wanted = request("gpu", CLASS, adminAccess=True, allocationMode="All")
    del wanted["exactly"]["count"]
    return kind("sees-all", namespace, wanted) | more


def publish(client, node, driver=DRIVER):
    return refusal(client.create, slice_(node, driver))


def bind(client, namespace, name):
    target = {"apiVersion": "v1", "kind": "Node", "name": NODES[0]}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace}, "target": target}
    return refusal(client.post, f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


def give(client, namespace, name, driver=DRIVER):
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status"
    result = {"request": "gpu", "driver": driver, "pool": NODES[0], "device": "gpu-0"}
    return refusal(client.patch, path, {"status": {"allocation": {"devices": {"results": [result]}}}})  # fmt: skip


def are_in_force(client, allowed, namespace):
    """Return whether each guard refuses an account without rights and allows an account with them.

    Policies, lists and roles take effect after some moments.
    """
    named = pod("tried", namespace, nodeName=NODES[0], resourceClaims=[using("a")])
    attempts = {
        "bindings": lambda who: refusal(who.create, named),
        "allocations": lambda who: give(who, namespace, "tried"),
        "admin-access": lambda who: refusal(who.create, admin(claim, namespace)),
    }
    turned_back = all(f"drawbridge-guard-{name}" in attempt(client) for name, attempt in attempts.items())
    is_listed = f"is not among the writers of {DRIVER}" in publish(client, NODES[0])
    return turned_back and is_listed and not any(attempt(allowed) for attempt in attempts.values())


def test_only_a_drivers_account_writes_its_slices_of_its_node(guards):
    with acting(guards, TENANT, NODES[0]) as tenant:
        assert f"is not among the writers of {DRIVER}" in publish(tenant, NODES[0])
        assert not publish(tenant, NODES[0], "unlisted.example.com"), "a driver without a list is guarded"
    with acting(guards, "guarded-plugin", NODES[0]) as plugin:
        assert not publish(plugin, NODES[0])
        assert f"is on node {NODES[0]}" in publish(plugin, NODES[1])
        assert "not for all" in publish(plugin, "")
    with acting(guards, "guarded-plugin") as stolen:
        assert "made for no node" in publish(stolen, NODES[0])
    with acting(guards, "guarded-controller") as controller:
        assert not publish(controller, NODES[1])
        assert not publish(controller, "")


def test_slices_of_a_node_belong_to_pools_of_its_name(guards):
    unlisted = "unlisted.example.com"
    node, other = NODES
    with acting(guards, TENANT, node) as tenant:
        for pool in (node, f"{node}/numa-1"):
            assert not refusal(tenant.create, slice_(node, unlisted, pool))
        assert not publish(tenant, "", unlisted), "devices of no node have pools of any name"
        for pool in (other, f"{node}0", "all"):
            assert f"in the pool {pool}: its pools are called {node} or {node}/NAME" in refusal(tenant.create, slice_(node, unlisted, pool))  # fmt: skip


def test_accounts_with_write_access_change_and_delete_slices(guards):
    [stored] = [slice_ for slice_ in guards.get("/apis/resource.k8s.io/v1/resourceslices")["items"] if slice_["spec"]["driver"] == DRIVER]  # fmt: skip
    path = f"/apis/resource.k8s.io/v1/resourceslices/{stored['metadata']['name']}"
    for node, expected in ((NODES[0], False), (NODES[1], True)):
        with acting(guards, "guarded-plugin", node) as plugin:
            grown = {"spec": {"pool": stored["spec"]["pool"] | {"generation": 9}}}
            assert bool(refusal(plugin.patch, path, grown)) is expected
            assert bool(refusal(plugin.delete, path)) is expected
    with acting(guards, TENANT, NODES[0]) as tenant:
        assert "drawbridge-guard-slices" in refusal(tenant.delete, path)


def test_only_allowed_accounts_bind_pods_despite_kubernetes_rights(guards, namespace):
    guards.create(pod("waits", namespace, schedulerName="no-such-scheduler"))
    named = pod("named", namespace, nodeName=NODES[0], resourceClaims=[using("a")])
    plain = pod("plain", namespace, nodeName=NODES[0])
    with acting(guards, TENANT) as tenant, acting(guards, MAY) as allowed:
        assert "may not choose the node of pod waits:" in bind(tenant, namespace, "waits")
        assert "may not choose the node of pod named:" in refusal(tenant.create, named)
        assert not refusal(tenant.create, plain), "a pod without claims is guarded"
        assert not bind(allowed, namespace, "waits")
        assert not refusal(allowed.create, named)


@pytest.fixture(scope="module")
def stock(guards):
    """A stock scheduler with the roles of Kubernetes and of the component: it may bind, and may not allocate managed devices."""
    name = "guarded-scheduler"
    account_ = account(name)
    made = [account_]
    for of in ("system:kube-scheduler", "system:volume-scheduler", "drawbridge-guard-scheduler"):
        [_, binding] = role(of, [], name)
        binding["metadata"] = {"name": f"guarded-{of}"}
        made.append(binding)
    guards.create(*made)
    kubeconfig = guards.account_kubeconfig(SYSTEM, name)
    configuration = {
        "profiles": [{"schedulerName": name}],
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    }
    running = guards.start_scheduler(configuration, name=name)
    try:
        yield name
    finally:
        running.stop()
        guards.remove(*reversed(made))


def test_a_scheduler_with_the_components_role_keeps_placing_pods(guards, stock, namespace):
    guards.create(pod("goes", namespace, node=NODES[1], schedulerName=stock))
    guards.wait_scheduled(namespace, "goes")
    guards.delete(f"/api/v1/namespaces/{namespace}/pods/goes", gracePeriodSeconds=0)


def test_only_accounts_with_the_right_allocate_managed_devices(guards, stock, namespace):
    """Every writer may deallocate. The policy refuses the stock scheduler too: its pod waits, and the claim is unchanged."""
    waits = pod("p", namespace, schedulerName=stock, resourceClaims=[using("a")])
    guards.create(claim("a", namespace, request("gpu", CLASS)), waits)
    with acting(guards, TENANT) as tenant, acting(guards, MAY) as allowed:
        message = give(tenant, namespace, "a")
        assert f"may not give away gpu-0 of pool {NODES[0]}: devices of {DRIVER}" in message
        assert not give(tenant, namespace, "a", "unmanaged.example.com")
        assert not give(allowed, namespace, "a")
        words = "drawbridge-guard-allocations"
        guards.until("it is told", lambda: any(words in event for event in guards.events(namespace, "p")))
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/a/status"
        assert "allocation" not in guards.get(path).get("status", {})
        guards.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
        result = {"request": "gpu", "driver": DRIVER, "pool": NODES[0], "device": "gpu-0"}
        allowed.patch(path, {"status": {"allocation": {"devices": {"results": [result]}}}})
        whose = [{"resource": "pods", "name": "p", "uid": "1"}]
        assert not refusal(tenant.patch, path, {"status": {"reservedFor": whose}})
        assert not refusal(tenant.patch, path, {"status": {"allocation": None}})


def test_only_accounts_with_the_right_may_request_admin_access(guards, namespace):
    guards.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": ADMIN}})
    old = {"name": "gpu", "deviceClassName": CLASS, "allocationMode": "All", "adminAccess": True}
    beta = claim("sees-all", namespace) | {
        "apiVersion": "resource.k8s.io/v1beta1",
        "spec": {"devices": {"requests": [old]}},
    }
    with acting(guards, TENANT) as tenant, acting(guards, MAY) as allowed:
        for item in (admin(claim, namespace), admin(template, namespace), beta):
            assert "may not ask for adminAccess in namespace" in refusal(tenant.create, item)
            assert not refusal(allowed.create, item)
        assert not refusal(tenant.create, claim("plain", namespace, request("gpu", CLASS)))
        [stored] = allowed.create(admin(claim, namespace))
        label = {"metadata": {"labels": {"a": "b"}}}
        assert not refusal(tenant.patch, guards.path_of(stored), label), "what was allowed is in the way"


def test_kube_controller_manager_creates_claims_from_templates_that_were_allowed(guards, namespace):
    guards.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": ADMIN}})
    who = "system:serviceaccount:kube-system:resource-claim-controller"
    text = manifests.dump([admin(claim, namespace)])
    guards.kubectl("create", f"--as={who}", "--dry-run=server", "-f", "-", input=text)


def test_guard_examples_of_the_page_match_the_output_of_kubectl(guards, monkeypatch):
    monkeypatch.chdir(ROOT)
    follow(guards, "guarded-tried", "Guards")
