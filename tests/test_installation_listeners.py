"""The listener for quota reviews and the listener for reservations are off by default, and their objects agree with each other."""

import datetime as dt

import pytest
from click.testing import CliRunner

from allocator.service.node_reservations import AUDIENCE
from certs import authority
from cli.commands.manifests import command
from cli.commands.webhook import names_of
from cluster import manifests
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from node.service import TOKEN
from tests.cli.running import run
from tests.installed_objects import ALLOCATOR_SECRET, AUTHORITY_SECRET, SERVING_SECRET, SIGNING_SECRET
from webhook.names import RESERVATIONS


def test_the_quota_option_adds_port_service_and_webhook():
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    options = ["--bridge", "--quota", "--namespace=elsewhere", "--api-server=10.0.0.1"]
    result = CliRunner().invoke(command, [*images, *options])
    assert result.exit_code == 0, result.output
    objects = {
        (document.object["kind"], document.object["metadata"]["name"]): document.object
        for document in manifests.parse(result.stdout)
    }
    pod = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]
    allocator = pod["containers"][0]
    assert {"--quota=0.0.0.0:9443", "--quota-certs=/etc/quota"} <= set(allocator["args"])
    assert {"name": "quota", "containerPort": 9443} in allocator["ports"]
    assert {"name": "quota", "secret": {"secretName": ALLOCATOR_SECRET}} in pod["volumes"]
    mounted_secrets = {volume.get("secret", {}).get("secretName") for volume in pod["volumes"]}
    assert not mounted_secrets & {SERVING_SECRET, AUTHORITY_SECRET, SIGNING_SECRET}, (
        "the allocator mounts a Secret of the webhook"
    )
    service = objects["Service", "drawbridge-quota"]
    assert service["metadata"]["namespace"] == "elsewhere"
    webhook_configuration = objects["ValidatingWebhookConfiguration", "drawbridge-quota"]
    service_names = {webhook["clientConfig"]["service"]["name"] for webhook in webhook_configuration["webhooks"]}
    service_namespaces = {
        webhook["clientConfig"]["service"]["namespace"] for webhook in webhook_configuration["webhooks"]
    }
    assert (service_names, service_namespaces) == ({"drawbridge-quota"}, {"elsewhere"})
    ingress = objects["NetworkPolicy", "drawbridge-quota"]["spec"]["ingress"]
    assert ingress[0]["from"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


@pytest.mark.parametrize(
    "certificate_option",
    ["--cert-manager=elsewhere/drawbridge-tls", "--ca-bundle={}"],
    ids=["cert-manager", "CA bundle"],
)
def test_with_external_certificates_the_quota_listener_uses_its_own_secret(certificate_option, tmp_path):
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(authority.authority("x", now=dt.datetime.now(dt.UTC), life=dt.timedelta(days=1)).certificate)
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    result = CliRunner().invoke(command, [*images, "--bridge", "--quota", certificate_option.format(bundle)])
    assert result.exit_code == 0, result.output
    deployments = {
        document.object["metadata"]["name"]: document.object
        for document in manifests.parse(result.stdout)
        if document.object["kind"] == "Deployment"
    }
    pod = deployments["drawbridge-allocator"]["spec"]["template"]["spec"]
    assert {"name": "quota", "secret": {"secretName": "drawbridge-quota-tls"}} in pod["volumes"]


def test_quota_is_off_by_default_and_requires_the_bridge():
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    assert "drawbridge-quota" not in "".join(CliRunner().invoke(command, [*images, "--bridge"]).output.split("resourceNames")[0:1])  # fmt: skip
    result = CliRunner().invoke(command, [*images, "--quota"])
    assert result.exit_code == 2


def test_the_reservations_option_connects_agents_with_the_allocator():
    """Network policy, token audience and the host name in the certificate agree."""
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    options = ["--bridge", "--node-agent", "--reservations", "--namespace=elsewhere"]
    result = CliRunner().invoke(command, [*images, *options])
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


def test_the_allocators_certificate_names_its_quota_and_reservations_services(monkeypatch):
    all_settings = []

    class FakeService:
        def __init__(self, *arguments):
            all_settings.append(arguments[2])

        async def run(self, *_):
            pass

    monkeypatch.setattr("webhook.service.Service", FakeService)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded())
    assert run("webhook", "--namespace", "elsewhere").exit_code == 0
    [settings] = all_settings
    assert {"drawbridge-quota.elsewhere.svc", f"{RESERVATIONS}.elsewhere.svc"} <= set(settings.allocator_names)


def test_reservations_need_bridge_and_agent_and_accept_external_certificates():
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    for incomplete_options in (["--bridge"], ["--node-agent"]):
        assert CliRunner().invoke(command, [*images, *incomplete_options, "--reservations"]).exit_code == 2
    result = CliRunner().invoke(command, [*images, "--bridge", "--node-agent", "--reservations", "--cert-manager=a/b"])
    [deployment] = [
        document.object
        for document in manifests.parse(result.stdout)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("Deployment", "drawbridge-allocator")
    ]
    assert {"name": "reservations", "secret": {"secretName": "drawbridge-quota-tls"}} in deployment["spec"]["template"]["spec"]["volumes"]  # fmt: skip
