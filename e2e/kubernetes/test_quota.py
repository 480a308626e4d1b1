"""`drawbridge quota` on the real API server: the remaining amounts, the rights needed, and an interrupted list."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors import fleet
from e2e.actors.proxy import Proxy
from e2e.actors.webhook import COMMAND
from e2e.actors.workloads import claim, container, pod, request, template, using, using_template
from e2e.kubernetes.test_kinds import quota, served  # noqa: F401  the kinds, as they are in the manifests
from e2e.kubernetes.test_survey import account

pytestmark = pytest.mark.real
ROLE = Path(__file__).parents[2] / "manifests" / "explain" / "role.yaml"
CLASS = "e2e-quota"
DRIVER = "quota-command.example.com"
LINE = f"{CLASS}/devices"


@pytest.fixture
def team(served, namespace, created):  # noqa: F811  a fixture
    """A namespace with an allocated claim, and a waiting pod and claim."""
    [node] = served.add_fake_nodes(1, prefix="quota-")
    created(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
    created(*fleet.slices(DRIVER, node, [fleet.device("only", {})]))
    using_it = container(resources={"claims": [{"name": "held"}]})
    held = claim("held", namespace, request("gpu", CLASS))
    created(held, pod("runs", namespace, using_it, node=node, resourceClaims=[using("held")]))
    served.wait_scheduled(namespace, "runs")
    created(claim("waits", namespace, request("gpu", CLASS, 2)), template("one", namespace, request("gpu", CLASS)))
    created(pod("later", namespace, schedulerName="no-such-scheduler", resourceClaims=[using_template("one")]))
    created(quota(namespace, **{LINE: 8}))
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    served.until("a claim is made for the pod", lambda: len(served.get(claims)["items"]) == 3, 60)
    yield namespace
    served.delete(f"/api/v1/nodes/{node}")


def show_quota(kubeconfig, *words):
    command = [*COMMAND, "quota", "--kubeconfig", str(kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def looker(control_plane, namespace, created, role):
    """An account with this role in one namespace, and nowhere else."""
    metadata = {"name": "narrow", "namespace": namespace}
    rights = role | {"kind": "Role", "metadata": metadata}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "narrow"},
        "subjects": [{"kind": "ServiceAccount", "name": "narrow", "namespace": namespace}],
    }
    created({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, rights, binding)
    [rule, *_] = role["rules"]
    who = f"system:serviceaccount:{namespace}:narrow"
    control_plane.until_may(who, rule["verbs"][0], rule["resources"][0], namespace, rule["apiGroups"][0])
    return control_plane.account_kubeconfig(namespace, "narrow")


def test_each_line_is_listed_for_one_and_for_all_namespaces(control_plane, team, created):
    everywhere = account(control_plane, team, created, yaml.safe_load(ROLE.read_text()))
    code, output, complaint = show_quota(everywhere, "-n", team, "-o", "wide")
    assert (code, complaint) == (0, "")
    assert [line.split() for line in output.splitlines() if line] == [
        ["1", "DeviceQuota:", "0", "of", "1", "line", "used", "up"],
        [f"{team}/tried"],
        ["LINE", "HARD", "USED", "PENDING", "REMAINING"],
        [LINE, "8", "1", "3", "4"],
        ["1:", f"{team}/held", "of", "runs"],
    ]
    code, output, _ = show_quota(everywhere, "-A", "-o", "json")
    assert code == 0
    [mine] = [quota for quota in json.loads(output)["quotas"] if quota["quota"] == f"{team}/tried"]
    [line] = mine["lines"]
    assert (line["used"], line["pending"], line["remaining"]) == ("1", "3", "4")
    assert line["holders"] == [{"claim": f"{team}/held", "pods": ["runs"], "amount": "1"}]


def test_namespace_rights_suffice_there_and_missing_rights_are_named_elsewhere(control_plane, team, created):
    narrow = looker(control_plane, team, created, yaml.safe_load(ROLE.read_text()))
    code, output, complaint = show_quota(narrow, "-n", team)
    assert code == 0
    assert [LINE, "8", "1", "3", "4"] in [line.split() for line in output.splitlines()]
    assert "deviceclasses" in complaint  # cluster-wide, and not read
    assert "claims" not in complaint
    for words in ((), ("-A",), ("-n", "default")):
        code, output, complaint = show_quota(narrow, *words)
        assert (code, output) == (3, "")
        assert complaint.startswith("error: devicequotas.drawbridge.dev")
        assert "forbidden" in complaint
        assert "-n" in complaint


@pytest.mark.parametrize("what", ["devicequotas", "resourceclaims", "pods"])
def test_a_list_interrupted_in_a_page_is_an_error(control_plane, team, tmp_path, what):
    """The connection breaks after the headers and the beginning of the list."""
    proxy = Proxy(control_plane.url, control_plane.ca, control_plane.token)
    kubeconfig = control_plane.write_kubeconfig("broken-off", control_plane.token, f"http://127.0.0.1:{proxy.port}")
    proxy.part = 600
    try:
        assert show_quota(kubeconfig, "-n", team)[0] == 0
        proxy.break_at(1, answered=True, selects=lambda request: f"/{what}" in request.path)
        code, output, complaint = show_quota(kubeconfig, "-n", team)
        assert (proxy.broken.is_set(), code, output) == (True, 3, "")
        assert complaint.startswith("error: ")
        assert "Traceback" not in complaint
    finally:
        proxy.close()
