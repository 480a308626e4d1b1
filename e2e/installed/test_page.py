"""`make cluster`, docs/install.md on it as printed, and `make cluster-down`: what a reader of the page does."""

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
    pytest.mark.time_limit(540, "a cluster starts, and all of ours twice"),
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


def up(environment, *words):
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
def apart(tmp_path_factory):
    """An environment whose clusters are not those of the person at this machine; programs and images are shared."""
    other = tmp_path_factory.mktemp("cache")
    for one in cache().iterdir():
        if one.name != "runs":
            (other / one.name).symlink_to(one)
    return os.environ | {"DRAWBRIDGE_CACHE": str(other), "DRAWBRIDGE_BESIDE_OTHERS": "1"}


@pytest.fixture(scope="module")
def shell(apart, tmp_path_factory):
    """A shell with what `make cluster` says to export, in the folder of the checkout, whose `manifests` the page names."""
    code, said = up(apart, "e2e.up")
    try:
        assert code == 0, said
        told = dict(EXPORT.findall(said))
        environment = apart | {
            "KUBECONFIG": told["KUBECONFIG"],
            "PATH": told["PATH"].replace("$PATH", os.environ["PATH"]),
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
        do(run, "kubectl create namespace team-a && kubectl apply -f gpus.yaml")
        yield run
    finally:
        code, said = up(apart, "e2e.down")
    assert code == 0
    assert "ended " in said


def section(heading):
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def commands(heading):
    """The commands of a section's blocks, but for docker: on `make cluster` the image is there."""
    lines = "".join(BLOCKS.findall(section(heading))).splitlines()
    return [line for line in lines if not line.startswith("docker ")]


def do(shell, command):
    done = shell(command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


# From a pod, by the name and with the account that every pod is given.
ASK = """
import ssl, urllib.request
given = "/var/run/secrets/kubernetes.io/serviceaccount"
bearer = {"Authorization": "Bearer " + open(f"{given}/token").read()}
trusted = ssl.create_default_context(cafile=f"{given}/ca.crt")
asked = urllib.request.Request("https://kubernetes.default.svc/apis/resource.k8s.io", headers=bearer)
print(urllib.request.urlopen(asked, context=trusted, timeout=20).status)
"""


def test_a_pod_reaches_the_api_server_by_its_service(shell):
    one = container() | {"image": product.NAME, "command": ["/opt/drawbridge/bin/python", "-c", ASK]}
    do(shell, f"kubectl apply -f - <<'END'\n{json.dumps(pod('asks', 'default', one))}\nEND")
    do(shell, "kubectl wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=60s pod/asks")
    assert do(shell, "kubectl logs asks") == "200\n"


def test_the_documented_installation_with_kubectl_works(shell):
    for command in commands("What is installed"):
        do(shell, command)
    is_translated(shell, "team-a", "nvidia.com/gpu")
    again = "drawbridge manifests --only webhooks --config drawbridge.yaml | kubectl apply --server-side -f -"
    assert f"`{again}`" in " ".join(section("What is installed").split())
    do(shell, again)
    for command in commands("Uninstalling"):
        do(shell, command)


def test_the_documented_installation_with_helm_works_and_prints_the_shown_output(shell):
    told = "".join(BLOCKS.findall(section("With Helm")))
    for step in re.split(r"^\$ ", told, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        done = shell(command)
        said = done.stdout + done.stderr
        lines = iter(said.splitlines())
        assert all(line in lines for line in expected.splitlines() if line not in ("", "...")), f"{command}: {said}"
        if command.startswith("helm install"):
            do(shell, "kubectl -n drawbridge-system rollout status deploy/drawbridge-webhook --timeout=120s")
            do(shell, "kubectl label namespace team-a drawbridge.dev/mode=enforce --overwrite")
            is_translated(shell, "team-a", "nvidia.com/gpu")


def is_translated(shell, namespace, key):
    """Ask until the API server has been told of the webhook, which takes it a moment, and the webhook of the namespace."""
    asks = json.dumps(pod("asks", namespace, container(**limits(**{key: 1}))))
    do(
        shell,
        f"for at in $(seq 60); do kubectl create --dry-run=server -o yaml -f - <<'END' | grep -q resourceClaims: && exit; sleep 1\n{asks}\nEND\ndone; exit 1",
    )


def test_a_second_cluster_is_not_started_beside_the_first(shell, apart):
    code, said = up(apart, "e2e.up")
    assert code == 1
    assert "a cluster runs already: export KUBECONFIG=" in said
