"""`drawbridge dashboard` on a live cluster: it agrees with `drawbridge explain`, and follows changes."""

import json
import subprocess
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from cluster import manifests
from dashboard.whatif import pack
from e2e.actors import fleet
from e2e.actors.webhook import COMMAND, ROOT
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground import packages
from tests.dashboard.browser.looking import FLAGS, PATIENCE

pytestmark = pytest.mark.real
DRIVER = "dashboard.example.com"
LOGIN = "login.example.com"
ACCOUNT = "drawbridge-dashboard"


@contextmanager
def dashboard(kubeconfig, *options):
    command = [*COMMAND, "dashboard", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(60) == 0


@contextmanager
def opened(url):
    """A page in Chromium."""
    from playwright.sync_api import sync_playwright  # not installed where there is no browser

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=packages.browser(), args=list(FLAGS))
        try:
            page = browser.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(url)
            yield page
        finally:
            browser.close()


def get(url, token=""):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except HTTPError as error:  # an object has no page until the dashboard has read it
        return error.read().decode()


def test_a_waiting_pod_and_its_later_device_are_shown_live(control_plane, namespace, created):
    control_plane.add_fake_nodes(1, prefix="dashboard-")
    created(
        fleet.device_class("dashboard-gpu", f"device.driver == '{DRIVER}'"),
        claim("wants", namespace, request("gpu", "dashboard-gpu")),
        pod("p", namespace, resourceClaims=[using("wants")]),
    )
    try:
        with dashboard(control_plane.kubeconfig) as url:
            control_plane.wait_unschedulable(namespace, "p")
            packed = [*COMMAND, "explain", "pod/p", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]  # fmt: skip
            explained = json.loads(
                subprocess.run(packed, capture_output=True, text=True, timeout=60, check=True).stdout
            )

            def reasons():
                waiting = json.loads(get(f"{url}/api/v1/waiting"))["waiting"]
                return [row["reason"] for row in waiting if row["pod"] == f"{namespace}/p"]

            assert control_plane.until(
                "the reason is shown", lambda: reasons() == [explained["pod"]["state"]["reasons"][0]["text"]], 60
            )
            assert "Kubernetes v1." in get(f"{url}/move")
            assert "FailedScheduling" in get(f"{url}/pods/{namespace}/p")
            with opened(f"{url}/namespaces/{namespace}") as page:
                page.get_by_text("1 pod waiting").wait_for()
                created(*fleet.slices(DRIVER, "dashboard-0", [fleet.device("gpu", {})], by_name=True))
                control_plane.wait_scheduled(namespace, "p", 60)
                page.get_by_role("cell", name=f"{DRIVER}/dashboard-0-fleet/gpu").wait_for()  # without a reload
                assert page.get_by_text("1 pod waiting").count() == 0
            held = f"{namespace}/p"
            control_plane.until("its holder is shown", lambda: held in get(f"{url}/nodes/dashboard-0"), 60)
            assert reasons() == []
            packed = pack(json.dumps(pod("q", namespace, resourceClaims=[using("wants")])))
            answer = json.loads(get(f"{url}/api/v1/what-if?q={packed}"))["found"]
            assert [(pod["pod"], pod["node"]) for pod in answer["pods"]] == [(f"{namespace}/q", "dashboard-0")]
            another = [claim("other", namespace, request("gpu", "dashboard-gpu")), pod("q", namespace, resourceClaims=[using("other")])]  # fmt: skip
            packed = pack("\n---\n".join(map(json.dumps, another)))
            [answer] = json.loads(get(f"{url}/api/v1/what-if?q={packed}"))["found"]["pods"]
            assert answer["node"] is None
            assert "in use" in answer["reason"]["text"]
            [answer] = json.loads(get(f"{url}/api/v1/what-if?q={packed}&add=dashboard-0%3D1"))["found"]["pods"]
            assert answer["node"] == "dashboard-0-1"
            moved = json.loads(get(f"{url}/api/v1/what-if?remove=dashboard-0&add=dashboard-0%3D1"))["found"]["pods"]
            assert [(pod["pod"], pod["node"]) for pod in moved] == [(held, "dashboard-0-1")]
    finally:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
        control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "dashboard-0"}})


def test_accounts_see_what_they_may_list(control_plane, namespace, created):
    """The dashboard has the role of its page and the role for logins.

    The viewers are a tenant and an account that may list all namespaces.
    """
    control_plane.add_fake_nodes(1, prefix="login-")
    other = control_plane.namespace(f"{namespace}-other")
    files = [ROOT / "manifests" / path for path in ("explain/role.yaml", "survey/role.yaml", "dashboard/rbac.yaml")]
    shipped = [document.object for document in manifests.read(files)]
    for obj in shipped:
        if obj["kind"] == "ServiceAccount":
            obj["metadata"]["namespace"] = namespace
        for subject in obj.get("subjects", ()):
            subject["namespace"] = namespace
    created(
        fleet.device_class("login-gpu", f"device.driver == '{LOGIN}'"),
        *fleet.slices(LOGIN, "login-0", [fleet.device(f"gpu-{at}", {}) for at in range(2)], by_name=True),
        *shipped,
        *(account(name, namespace) for name in ("tenant", "auditor", "stranger", "reader")),
        bound("login-reads", "drawbridge-explain", "reader", namespace, kind="RoleBinding"),
        bound("login-hears", "drawbridge-dashboard-events", "reader", namespace, kind="RoleBinding"),
        bound("login-audits", "drawbridge-explain", "auditor", namespace),
        bound("login-tenant", "drawbridge-explain", "tenant", namespace, kind="RoleBinding"),
        *(obj for where in (namespace, other) for obj in (claim("has", where, request("gpu", "login-gpu")), pod(f"in-{where}", where, resourceClaims=[using("has")]))),
    )  # fmt: skip
    try:
        for where in (namespace, other):
            control_plane.wait_scheduled(where, f"in-{where}", 60)
        with dashboard(control_plane.account_kubeconfig(namespace, ACCOUNT), "--login") as url:
            page = f"{url}/nodes/login-0"
            user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
            control_plane.until_may(user, "create", "subjectaccessreviews", "", "authorization.k8s.io")
            shown = {name: get(page, control_plane.token_of(namespace, name)) for name in ("tenant", "auditor", "stranger")}  # fmt: skip
            assert "Log in" in get(page)
            moves = {name: get(f"{url}/move", control_plane.token_of(namespace, name)) for name in ("tenant", "auditor")}  # fmt: skip
            events = {name: get(f"{url}/pods/{namespace}/in-{namespace}", control_plane.token_of(namespace, name)) for name in ("tenant", "reader")}  # fmt: skip
        assert "may list the pods and claims of all namespaces" in moves["tenant"]
        assert "unfinished pods" in moves["auditor"], moves["auditor"]
        assert "could not be read" not in moves["auditor"]
        for name, page in events.items():
            assert "Scheduled</td>" in page, (name, page[-3000:])
        assert {name: "2 held" in page or page[-1500:] for name, page in shown.items()} == dict.fromkeys(shown, True)
        seen = {name: (f"in-{namespace}<" in page, other in page) for name, page in shown.items()}
        assert seen == {"tenant": (True, False), "auditor": (True, True), "stranger": (False, False)}
    finally:
        for where in (namespace, other):
            control_plane.delete(f"/api/v1/namespaces/{where}/pods", gracePeriodSeconds=0)
        control_plane.remove(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "login-0"}},
        )


def account(name, namespace):
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def bound(name, role, account, namespace, kind="ClusterRoleBinding"):
    where = {"namespace": namespace} if kind == "RoleBinding" else {}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **where},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
