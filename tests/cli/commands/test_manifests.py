"""`drawbridge manifests` refuses values if the API server would refuse their objects. tests/test_installation.py tests the objects."""

import json
import os
import re
import threading

import pytest

from cluster import manifests
from tests.cli.running import run, run_manifests

BRIDGE = {"enabled": True, "schedulerImage": "y"}


@pytest.mark.parametrize(
    ("values", "place"),
    [
        *(({"webhooks": {"url": url}}, "webhooks/url") for url in ("garbage", "http://webhook.example.com", "https://", "https://u:p@webhook", "https://webhook?x=1", "https://webhook#x")),
        ({"webhooks": {"url": "https://webhook:99999"}}, "webhooks.url"),
        *(({"namespace": namespace}, "namespace") for namespace in ("Not_Valid", "-a", "a-", "a.b", "a" * 64)),
        *(({"certificates": {"certificate": name}}, "certificates/certificate") for name in ("x", "/", "a/", "/b", "a/b/c", "A/b", "a b/c")),
        *(({"bridge": {"schedulerImage": image}}, "bridge/schedulerImage") for image in ("Bad Image", "reg/x:1:2", "reg/X", "/x", "x/", "x:", "x@sha256:1", "a\nb", "reg//x", "{{ .image }}")),
        ({"networkPolicy": {"apiServers": ["nonsense"]}}, "networkPolicy/apiServers/0"),
        ({"networkPolicy": {"apiServers": ["10.0.0.1/40"]}}, "networkPolicy.apiServers"),
        ({"imge": "x"}, "unknown field 'imge' at /imge (expected one of image, namespace"),
        ({"bridge": {"enabeld": True}}, "unknown field 'enabeld' at /bridge/enabeld (expected one of enabled,"),
        ({"replicas": {"webhok": 1}}, "at /replicas (The number of replicas by Deployment: webhook, controller"),
        ({"replicas": {"webhook": -1}}, "/replicas"),
        ({"resources": {"webhook": {"limit": {}}}}, "/resources"),
        ({"level": "nodes"}, "'nodes' at /level (How much is installed. webhook: only"),
        ({"configuration": {"mod": "warn"}}, "unknown field 'mod' at /mod"),
        ({"certificates": {"from": "files"}}, "certificates.caBundle"),
        ({"certificates": {"from": "files", "caBundle": "no certificate"}}, "certificates.caBundle"),
        ({"level": "bridge"}, "set bridge.schedulerImage"),
        ({"bridge": {"reservations": True}}, "set level: node"),
    ],
)  # fmt: skip
def test_an_invalid_value_exits_with_2_and_names_its_place(values, place):
    result = run_manifests("--image", "x", **values)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert place in result.stderr


def test_an_invalid_option_or_a_second_document_exits_with_2():
    for arguments in (["--image", "Bad Image"], ["--namespace", "Not_Valid"]):
        result = run("manifests", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert repr(arguments[1]) in result.stderr
    assert run("manifests", "--values", "-", stdin="image: x\n---\nimage: y\n").exit_code == 2


@pytest.mark.parametrize("url", ["https://webhook.example.com", "https://10.0.0.7:8443/path"])
def test_a_valid_webhook_url_is_in_the_printed_manifests(url):
    result = run_manifests("--only", "webhooks", webhooks={"url": url})
    assert result.exit_code == 0
    assert f"url: {url}" in result.stdout


@pytest.mark.parametrize(
    "image",
    ["drawbridge", "reg/x:1", "reg.example.com:5000/a/b-c_d.e:v1.0_x", "[::1]:5000/x", "localhost/x@sha256:" + "0" * 64, "x:1@sha256:" + "a" * 64],
)  # fmt: skip
def test_every_deployment_uses_the_image_as_given(image):
    result = run("manifests", "--only", "rest", "--image", image)
    assert result.exit_code == 0
    images = [line.split("image: ")[1].strip("'") for line in result.stdout.splitlines() if " image: " in line]
    assert images == [image] * 3


def test_the_bridges_pod_runs_the_allocator_and_our_scheduler():
    result = run_manifests("--image", "x", bridge=BRIDGE)
    [deployment] = [
        document.object
        for document in manifests.parse(result.stdout)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("Deployment", "drawbridge-allocator")
    ]
    spec = deployment["spec"]
    allocator, scheduler = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], allocator["image"], scheduler["image"]) == (2, "x", "y")
    assert scheduler["command"] == ["/drawbridge-scheduler"]
    mount_paths = [[mount["mountPath"] for mount in container["volumeMounts"]] for container in (allocator, scheduler)]
    assert mount_paths == [["/etc/drawbridge", "/run/drawbridge"], ["/etc/scheduler", "/run/drawbridge"]]
    assert scheduler["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize(
    ("level", "values"),
    [
        ("webhook", {}),
        ("readOnly", {"readOnly": True}),
        ("bridge", {"bridge": BRIDGE}),
        ("node", {"bridge": BRIDGE | {"reservations": True}, "nodeAgent": True}),
    ],
)
def test_a_level_stands_for_its_values(level, values):
    result = run_manifests("--image", "x", level=level, bridge={"schedulerImage": "y"})
    assert result.exit_code == 0
    assert result.stdout == run_manifests("--image", "x", **values).stdout
    assert ("drawbridge-read-only" in result.stdout) is (level == "readOnly")


def test_a_value_overrides_the_configuration(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: warn\nbridge: {schedulerName: a}\n"
    )
    values = {"configuration": {"canary": 10, "bridge": {"drivers": ["gpu.nvidia.com"]}}}
    result = run_manifests("--image", "x", "--only", "rest", "--config", config, **values)
    [text] = [document.object["data"]["drawbridge.yaml"] for document in manifests.parse(result.stdout) if document.object["kind"] == "ConfigMap"]  # fmt: skip
    expected = {"mode": "warn", "canary": 10, "bridge": {"schedulerName": "a", "drivers": ["gpu.nvidia.com"]}}
    assert expected.items() <= manifests.parse(text)[0].object.items()


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm") / "new" / "chart"
    result = run("manifests", "--chart", folder)
    assert result.exit_code == 0
    assert f"helm install drawbridge {folder}" in result.stdout
    return folder


def test_the_chart_excludes_values(tmp_path):
    for arguments in (("--only", "rest"), ("--image", "x"), ("--namespace", "x"), ("--values", "x")):
        result = run("manifests", "--chart", tmp_path / "chart", *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert "--chart excludes" in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_values_of_the_chart_are_those_of_the_command(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    assert schema["properties"]["configuration"]["properties"]["mode"]["enum"] == ["enforce", "observe", "off", "warn"]
    assert not schema["properties"]["configuration"]["additionalProperties"]
    defaults = run("manifests", "--image", "x", "--values", chart / "values.yaml")
    assert defaults.exit_code == 0, defaults.stderr
    assert defaults.stdout == run("manifests", "--image", "x").stdout
    values_ = manifests.parse((chart / "values.yaml").read_text())[0].object
    assert values_.keys() == schema["properties"].keys() - {"global"}


def test_a_chart_overwrites_no_file_and_no_folder(tmp_path):
    (tmp_path / "values.yaml").write_text("image: mine")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        result = run("manifests", "--chart", folder)
        assert (result.exit_code, result.stdout) == (2, "")
        assert str(folder) in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "values.yaml"]


@pytest.mark.parametrize("source", ["-", "pipe"])
def test_a_configuration_from_stdin_or_a_pipe_is_printed(source, tmp_path):
    """A pipe can be read only once."""
    text = 'apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: "off"\n'
    file = source
    if source == "pipe":
        file = tmp_path / "pipe"
        os.mkfifo(file)
        threading.Thread(target=file.write_text, args=(text,), daemon=True).start()
    result = run("manifests", "--image", "x", "--config", file, stdin=text)
    assert result.exit_code == 0, result.output
    printed_objects = [document.object for document in manifests.parse(result.stdout)]
    [config_map] = [
        obj for obj in printed_objects if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", "drawbridge")
    ]
    assert config_map["data"]["drawbridge.yaml"] == text


def test_an_unreadable_configuration_creates_no_chart(tmp_path):
    result = run("manifests", "--chart", tmp_path / "chart", "--config", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_printed_manifests_have_no_names_of_the_bases():
    result = run_manifests(
        "--image", "x", "--namespace", "y", level="node", bridge={"schedulerImage": "z"}, readOnly=True
    )
    assert result.exit_code == 0
    assert not re.search(r"__[A-Z_]+__|drawbridge-system|\.invalid", result.stdout)
