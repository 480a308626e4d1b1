"""A real Prometheus beside an installed drawbridge: it scrapes our pods, accepts our rules, and has data for every panel."""

import json
import re
import urllib.parse
import urllib.request
from contextlib import closing

import pytest
import yaml

from e2e.actors.workloads import claim, container, limits, pod, request
from e2e.build import program
from e2e.driver.test_adapter import HOLD, RESOURCE
from e2e.ground.controlplane import free_port
from e2e.installed.installation import PROGRAM, ROOT, until_pods_are_translated

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]

SHIPPED = ROOT / "manifests/monitoring"
SCRAPED = {"webhook": 2, "controller": 2, "authority": 2, "allocator": 2, "driver": 1, "adapter": 1, "node-agent": 1}
PANELS = json.loads((SHIPPED / "grafana.json").read_text())["panels"]
QUERIES = {panel["title"]: target["expr"] for panel in PANELS for target in panel["targets"]}


class Prometheus:
    """The running Prometheus, and its API."""

    def __init__(self, url, process):
        self.url = url
        self.process = process

    def ask(self, path, **parameters):
        self.process.check()
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with closing(urllib.request.urlopen(url, timeout=10)) as answer:
            return json.load(answer)["data"]

    def answers(self):
        try:
            return bool(self.ask("status/buildinfo"))
        except OSError:
            return False


@pytest.fixture(scope="module")
def kube_state_metrics(installation):
    """kube-state-metrics, which exports metrics of pods; yields its address."""
    cluster = installation.cluster
    address, port, telemetry_port = cluster.network.address, free_port(), free_port()
    command = [
        program("kube-state-metrics"),
        f"--kubeconfig={cluster.kubeconfig}",
        "--resources=pods",
        f"--host={address}",
        f"--port={port}",
        f"--telemetry-host={address}",
        f"--telemetry-port={telemetry_port}",
    ]
    process = cluster.spawn("kube-state-metrics", command, enter=cluster.network.enter())
    yield f"{address}:{port}"
    process.stop()


@pytest.fixture(scope="module")
def prometheus(installation, kube_state_metrics):
    """Prometheus with the shipped files, and a kubeconfig because its process is in no pod."""
    cluster = installation.cluster
    jobs = yaml.safe_load((SHIPPED / "scrape.yaml").read_text())
    for job in jobs["scrape_configs"]:
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(cluster.kubeconfig)
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(SHIPPED / "alerts.yaml")],
        "scrape_config_files": [str(cluster.write_json("scrape.json", jobs))],
        "scrape_configs": [{"job_name": "pods", "static_configs": [{"targets": [kube_state_metrics]}]}],
    }
    address = f"{cluster.network.address}:{free_port()}"
    command = [
        program("prometheus"),
        f"--config.file={cluster.write_json('prometheus.json', configuration)}",
        f"--storage.tsdb.path={cluster.run.data / 'prometheus'}",
        f"--web.listen-address={address}",
    ]
    process = cluster.spawn("prometheus", command, enter=cluster.network.enter())
    running = Prometheus(f"http://{address}", process)
    cluster.until("Prometheus answers", running.answers, 60)
    yield running
    process.stop()


@pytest.fixture(scope="module")
def prometheus_with_pods(prometheus, installation, tenants):
    """Prometheus while two pods have devices: one pod by a claim from the webhook, one by its own claim. A third pod has ended."""
    cluster = installation.cluster
    cluster.until(
        "Prometheus scrapes each of our processes",
        lambda: sum(target["health"] == "up" for target in targets(prometheus)) == sum(SCRAPED.values()),
        90,
    )
    until_pods_are_translated(cluster, tenants)
    installation.run_gpu_pod(tenants, "seen", schedulerName="drawbridge")  # a rate needs a sample before the increase
    # The class of this claim has an extended resource name.
    own = claim(
        "own", tenants, request("one", f"{RESOURCE.replace('example.com/', '')}.example.com.plugins.drawbridge.dev")
    )
    spec = {"resourceClaims": [{"name": "own", "resourceClaimName": "own"}]}
    container_ = container(command=HOLD, resources={"claims": [{"name": "own"}]})
    cluster.create(own, pod("holds-own", tenants, container_, **spec))
    cluster.create(pod("holds", tenants, container(command=HOLD, **limits(**{"nvidia.com/gpu": 1}))))
    names = ("holds-own", "holds")
    for name in names:
        cluster.wait_phase(tenants, name, "Running", seconds=90)
    yield prometheus
    for name in names:
        cluster.delete(f"/api/v1/namespaces/{tenants}/pods/{name}")
    cluster.remove(own)
    claims = f"/apis/resource.k8s.io/v1/namespaces/{tenants}/resourceclaims"
    cluster.until("their claims are gone", lambda: not cluster.get(claims)["items"], 60)


def targets(prometheus):
    """The targets of our processes."""
    return [
        target for target in prometheus.ask("targets", state="active")["activeTargets"] if "pod" in target["labels"]
    ]


def values(prometheus, query):
    return prometheus.ask("query", query=query)["result"]


def test_prometheus_scrapes_every_process_of_ours(prometheus_with_pods, installation):
    """Pods that earlier tests have replaced cannot be scraped, but remain targets for a moment."""
    failed = []

    def all_are_scraped():
        active = targets(prometheus_with_pods)
        failed[:] = [(target["labels"]["pod"], target["lastError"]) for target in active if target["health"] != "up"]
        pods = [target["labels"]["pod"] for target in active]
        counts = {name: sum(pod.startswith(f"drawbridge-{name}-") for pod in pods) for name in SCRAPED}
        return not failed and counts == SCRAPED

    installation.cluster.until(
        "Prometheus scrapes each process, and no other target", all_are_scraped, 60, lambda: failed
    )


def test_every_rule_evaluates_and_no_alert_fires_when_healthy(prometheus_with_pods, installation):
    def rules():
        return [rule for group in prometheus_with_pods.ask("rules")["groups"] for rule in group["rules"]]

    installation.cluster.until(
        "all rules are evaluated", lambda: all(rule["health"] != "unknown" for rule in rules()), 30
    )
    assert {rule["name"]: rule.get("lastError", "") for rule in rules() if rule["health"] != "ok"} == {}
    assert len(rules()) > 10
    # Load of the machine and faults of earlier tests do not count.
    ignored = ("DrawbridgeReviewsAreSlow", "DrawbridgeReviewsDelayed")

    def alerts():
        return [
            f"{alert['labels']['alertname']}: {alert['annotations']['summary']}"
            for alert in prometheus_with_pods.ask("alerts")["alerts"]
            if alert["labels"]["alertname"] not in ignored
        ]

    installation.cluster.until("no alert is left", lambda: not alerts(), 60, alerts)


def test_documented_queries_count_extended_resources_and_claims(prometheus_with_pods, installation, tenants):
    """These are the queries of docs/operating.md: one pod has a device by its own claim, another one by an extended resource."""
    cluster, label = installation.cluster, re.sub(r"\W", "_", RESOURCE)
    cluster.create(pod("by-name", tenants, container(command=HOLD, **limits(**{RESOURCE: 1, "cpu": "50m"}))))
    try:
        cluster.wait_phase(tenants, "by-name", "Running", seconds=90)

        def counts_of(query):
            series = values(prometheus_with_pods, query)
            return {sample["metric"].get("pod", ""): sample["value"][1] for sample in series if sample["metric"]["namespace"] == tenants}  # fmt: skip

        requests = f'kube_pod_container_resource_requests{{resource="{label}"}}'
        cluster.until("kube-state-metrics exports the pod's request", lambda: counts_of(requests), 30)
        assert counts_of(requests) == {"by-name": "1"}
        [query] = re.findall(r"(?m)^sum by \(namespace\) \([^`]*", (ROOT / "docs/operating.md").read_text())
        query_of_both = query.replace("nvidia_com_gpu", label)
        cluster.until(
            "the documented query counts both pods",
            lambda: counts_of(query_of_both) == {"": "2"},
            30,
            lambda: values(prometheus_with_pods, query_of_both),
        )
        panel_query = QUERIES["Devices that pods have, by namespace"]
        cluster.until(
            "the panel counts all three pods",
            lambda: counts_of(panel_query) == {"": "3"},
            30,
            lambda: values(prometheus_with_pods, panel_query),
        )
        described = cluster.kubectl("describe", "node", installation.node.name).stdout
        pods, _, sums = described.partition("Non-terminated Pods:")[2].partition("Allocated resources:")
        assert "holds-own" in pods
        assert "cpu" in sums
        assert RESOURCE not in sums
    finally:
        cluster.delete(f"/api/v1/namespaces/{tenants}/pods/by-name")


@pytest.mark.parametrize("title", QUERIES)
def test_every_panel_has_data(prometheus_with_pods, installation, title):
    installation.cluster.until(f"{title} has a line", lambda: values(prometheus_with_pods, QUERIES[title]), 30)


def test_the_dashboard_draws_data_from_prometheus(prometheus_with_pods, installation):
    cluster = installation.cluster
    port = free_port()
    command = [
        PROGRAM,
        "dashboard",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--prometheus={prometheus_with_pods.url}",
        f"--listen=127.0.0.1:{port}",
    ]
    process = cluster.spawn(
        "drawbridge-dashboard", command, enter=["env"]
    )  # on this machine, not in the cluster's network

    def lines():
        process.check()
        with closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/history?days=7", timeout=10)) as answer:
            return json.load(answer)["lines"]

    def titles():
        try:
            return [line["title"] for line in lines()]
        except OSError:
            return []

    try:
        assert "Devices in use" in cluster.until("its history has lines", titles, 60)
    finally:
        process.stop()
