"""The listener for reservations is off by default, and its objects agree with each other."""

from allocator.service.node_reservations import AUDIENCE
from cli.commands.webhook import names_of
from cluster import manifests
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from node.service import TOKEN
from tests.cli.running import run, run_manifests
from tests.installed_objects import ALLOCATOR_SECRET
from webhook.names import RESERVATIONS

BRIDGE = {"schedulerImage": "registry.example/scheduler:1"}


def test_the_reservations_option_connects_agents_with_the_allocator():
    """Network policy, token audience and the host name in the certificate agree."""
    result = run_manifests("--image", "x", "--namespace", "elsewhere", level="node", bridge=BRIDGE)
    assert result.exit_code == 0, result.output
    assert "drawbridge-system" not in result.output
    objects = {
        (document.object["kind"], document.object["metadata"]["name"]): document.object
        for document in manifests.parse(result.stdout)
    }
    pod = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]
    assert {"--reservations=0.0.0.0:9444", "--reservations-certs=/etc/reservations"} <= set(
        pod["containers"][0]["args"]
    )
    assert {"name": "reservations", "secret": {"secretName": ALLOCATOR_SECRET}} in pod["volumes"]
    agent = objects["DaemonSet", "drawbridge-node-agent"]["spec"]["template"]["spec"]
    host = f"{RESERVATIONS}.elsewhere.svc"
    assert f"--allocator=https://{host}:9444" in agent["containers"][0]["args"]
    assert host in names_of(RESERVATIONS, "elsewhere")
    [token] = [
        volume["projected"]["sources"][0]["serviceAccountToken"] for volume in agent["volumes"] if "projected" in volume
    ]
    [mount] = [mount for mount in agent["containers"][0]["volumeMounts"] if mount["name"] == "reservations"]
    assert (token["audience"], f"{mount['mountPath']}/{token['path']}") == (AUDIENCE, TOKEN)
    service = objects["Service", RESERVATIONS]
    assert (service["metadata"]["namespace"], service["spec"]["clusterIP"]) == ("elsewhere", "None")
    agent_rule, _ = objects["NetworkPolicy", RESERVATIONS]["spec"]["ingress"]
    [allowed_peer] = agent_rule["from"]
    assert allowed_peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "elsewhere-nodes"}
    assert set(allowed_peer["podSelector"]["matchLabels"].items()) <= set(objects["DaemonSet", "drawbridge-node-agent"]["spec"]["template"]["metadata"]["labels"].items())  # fmt: skip


def test_the_allocators_certificate_names_its_reservations_service(monkeypatch):
    all_settings = []

    class FakeService:
        def __init__(self, *arguments):
            all_settings.append(arguments[2])

        async def run(self, *_):
            pass

    monkeypatch.setattr("webhook.service.WebhookServer", FakeService)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded())
    assert run("webhook", "--namespace", "elsewhere").exit_code == 0
    [settings] = all_settings
    assert f"{RESERVATIONS}.elsewhere.svc" in settings.allocator_names


def test_reservations_need_bridge_and_agent_and_accept_external_certificates():
    reservations = BRIDGE | {"reservations": True}
    for incomplete in ({"bridge": reservations | {"enabled": True}}, {"bridge": reservations, "nodeAgent": True}):
        assert run_manifests("--image", "x", **incomplete).exit_code == 2
    result = run_manifests("--image", "x", level="node", bridge=BRIDGE, certificates={"from": "cert-manager"})
    [deployment] = [
        document.object
        for document in manifests.parse(result.stdout)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("Deployment", "drawbridge-allocator")
    ]
    assert {"name": "reservations", "secret": {"secretName": "drawbridge-reservations-tls"}} in deployment["spec"]["template"]["spec"]["volumes"]  # fmt: skip
