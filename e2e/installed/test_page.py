"""`make cluster`, docs/install.md as printed, and `make cluster-down`: the steps of a reader of the page."""

import json
import os
import re
import subprocess
import sys

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.webhook import ROOT
from e2e.actors.workloads import container, limits, pod
from e2e.ground import product
from e2e.ground.cache import cache
from e2e.ground.controlplane import NODE
from webhook.names import VERSION

pytestmark = [
    pytest.mark.real,
    pytest.mark.node,
    pytest.mark.timeout(540),
]

PAGE = (ROOT / "docs/install.md").read_text().replace(f"REGISTRY/drawbridge:{VERSION}", product.NAME)
BLOCKS = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXPORT = re.compile(r"^export (\w+)=(\S+)", re.MULTILINE)
CONFIGURATION = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
dialects:
- {name: ours, title: Ours, target: gpu, keys: [{name: gpu.example.com/x, meaning: all, role: count}]}
"""


def run_module(environment, *words):
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def own_environment(tmp_path_factory):
    """An environment with its own clusters, apart from those of the user; programs and images are shared."""
    own_cache = tmp_path_factory.mktemp("cache")
    for path in cache().iterdir():
        if path.name != "runs":
            (own_cache / path.name).symlink_to(path)
    return os.environ | {"DRAWBRIDGE_CACHE": str(own_cache), "DRAWBRIDGE_BESIDE_OTHERS": "1"}


@pytest.fixture(scope="module")
def shell(own_environment, tmp_path_factory):
    """A shell with the exports of `make cluster`, in a folder with the `manifests` that the page names."""
    code, output = run_module(own_environment, "e2e.up")
    try:
        assert code == 0, output
        variables = dict(EXPORT.findall(output))
        environment = own_environment | {
            "KUBECONFIG": variables["KUBECONFIG"],
            "PATH": variables["PATH"].replace("$PATH", os.environ["PATH"]),
        }
        folder = tmp_path_factory.mktemp("reader")
        (folder / "manifests").symlink_to(ROOT / "manifests")
        (folder / "drawbridge.yaml").write_text(CONFIGURATION)

        def run(command):
            return subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=150,
            )

        gpus = [*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(1), by_name=True), *fleet.classes(extended=False)]
        (folder / "gpus.yaml").write_text(dump(gpus))
        run_checked(run, "kubectl create namespace team-a && kubectl apply -f gpus.yaml")
        yield run
    finally:
        code, output = run_module(own_environment, "e2e.down")
    assert code == 0
    assert "ended " in output


def section(heading):
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def commands(heading):
    """The commands of a section's blocks, without docker: `make cluster` has the image."""
    lines = "".join(BLOCKS.findall(section(heading))).splitlines()
    return [line for line in lines if not line.startswith("docker ")]


def run_checked(shell, command):
    done = shell(command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


# Calls the API server from a pod, with the address and the account that every pod has.
CALL_API_SERVER = """
import ssl, urllib.request
given = "/var/run/secrets/kubernetes.io/serviceaccount"
bearer = {"Authorization": "Bearer " + open(f"{given}/token").read()}
trusted = ssl.create_default_context(cafile=f"{given}/ca.crt")
asked = urllib.request.Request("https://kubernetes.default.svc/apis/resource.k8s.io", headers=bearer)
print(urllib.request.urlopen(asked, context=trusted, timeout=20).status)
"""


def test_a_pod_reaches_the_api_server_by_its_service(shell):
    container_ = container() | {"image": product.NAME, "command": ["/opt/drawbridge/bin/python", "-c", CALL_API_SERVER]}
    run_checked(shell, f"kubectl apply -f - <<'END'\n{json.dumps(pod('asks', 'default', container_))}\nEND")
    run_checked(shell, "kubectl wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=60s pod/asks")
    assert run_checked(shell, "kubectl logs asks") == "200\n"


def test_the_documented_installation_with_kubectl_works(shell):
    for command in [*commands("What is installed"), *commands("Namespace by namespace")]:
        run_checked(shell, command)
    until_translated(shell, "team-a", "nvidia.com/gpu")
    apply_webhooks = "drawbridge manifests --only webhooks --config drawbridge.yaml | kubectl apply --server-side -f -"
    assert f"`{apply_webhooks}`" in " ".join(section("Namespace by namespace").split())
    run_checked(shell, apply_webhooks)
    for command in commands("Uninstalling"):
        run_checked(shell, command)


def test_the_documented_helm_installation_prints_the_documented_output(shell):
    blocks = "".join(BLOCKS.findall(section("With Helm")))
    for step in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        done = shell(command)
        output = done.stdout + done.stderr
        lines = iter(output.splitlines())
        assert all(line in lines for line in expected.splitlines() if line not in ("", "...")), f"{command}: {output}"
        if command.startswith("helm install"):
            run_checked(shell, "kubectl -n drawbridge-system rollout status deploy/drawbridge-webhook --timeout=120s")
            run_checked(shell, "kubectl label namespace team-a drawbridge.dev/mode=enforce --overwrite")
            until_translated(shell, "team-a", "nvidia.com/gpu")


def until_translated(shell, namespace, key):
    """Retry until the API server calls the webhook and the webhook knows the namespace."""
    manifest = json.dumps(pod("asks", namespace, container(**limits(**{key: 1}))))
    run_checked(
        shell,
        f"for at in $(seq 60); do kubectl create --dry-run=server -o yaml -f - <<'END' | grep -q resourceClaims: && exit; sleep 1\n{manifest}\nEND\ndone; exit 1",
    )


def test_a_second_cluster_does_not_start_next_to_the_first(shell, own_environment):
    code, output = run_module(own_environment, "e2e.up")
    assert code == 1
    assert "a cluster runs already: export KUBECONFIG=" in output
