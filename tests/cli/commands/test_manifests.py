"""`drawbridge manifests` refuses options if the API server would refuse their objects. tests/test_installation.py tests the objects."""

import json
import os
import re
import threading

import pytest

from cli.commands.manifests import command
from cluster import manifests
from tests.cli.running import run


@pytest.mark.parametrize(
    "url",
    ["garbage", "http://webhook.example.com", "https://", "https://u:p@webhook", "https://webhook?x=1", "https://webhook#x", "https://webhook:99999", "https://[::1"],
)  # fmt: skip
def test_an_invalid_webhook_url_exits_with_2(url):
    result = run("manifests", "--only", "webhooks", "--url", url)
    assert result.exit_code == 2
    assert url in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("url", ["https://webhook.example.com", "https://10.0.0.7:8443/path"])
def test_a_valid_webhook_url_is_in_the_printed_manifests(url):
    result = run("manifests", "--only", "webhooks", "--url", url)
    assert result.exit_code == 0
    assert f"url: {url}" in result.stdout


@pytest.mark.parametrize("namespace", ["Not_Valid", "-a", "a-", "a.b", "a" * 64, ""])
def test_an_invalid_namespace_name_exits_with_2(namespace):
    result = run("manifests", "--namespace", namespace)
    assert result.exit_code == 2
    assert repr(namespace) in result.stderr


@pytest.mark.parametrize(
    "image", ["Bad Image", "reg/x:1:2", "reg/X", "/x", "x/", "x:", "x@sha256:1", "a\nb", "reg//x", "{{ .image }}"]
)
def test_an_invalid_image_reference_exits_with_2(image):
    result = run("manifests", "--image", image)
    assert result.exit_code == 2
    assert repr(image) in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "image",
    ["drawbridge", "reg/x:1", "reg.example.com:5000/a/b-c_d.e:v1.0_x", "[::1]:5000/x", "localhost/x@sha256:" + "0" * 64, "x:1@sha256:" + "a" * 64],
)  # fmt: skip
def test_every_deployment_uses_the_image_as_given(image):
    result = run("manifests", "--only", "rest", "--image", image)
    assert result.exit_code == 0
    images = [line.split("image: ")[1].strip("'") for line in result.stdout.splitlines() if " image: " in line]
    assert images == [image] * 3


@pytest.mark.parametrize("certificate", ["x", "/", "a/", "/b", "a/b/c", "A/b", "a b/c"])
def test_an_invalid_certificate_name_exits_with_2(certificate):
    result = run("manifests", "--only", "webhooks", "--cert-manager", certificate)
    assert result.exit_code == 2
    assert repr(certificate) in result.stderr


def test_a_missing_or_invalid_ca_bundle_exits_with_2(tmp_path):
    (tmp_path / "empty.pem").write_text("no certificate")
    for name in ("empty.pem", "missing.pem"):
        result = run("manifests", "--only", "webhooks", "--ca-bundle", tmp_path / name)
        assert result.exit_code == 2
        assert name in result.stderr
        assert result.stdout == ""


def test_an_invalid_api_server_address_exits_with_2():
    for only in ((), ("--only", "webhooks")):
        assert run("manifests", "--image", "x", "--api-server", "nonsense", *only).exit_code == 2


def test_the_bridges_pod_runs_the_allocator_and_our_scheduler():
    result = run("manifests", "--image", "x", "--bridge", "--scheduler-image", "y")
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


def test_the_read_only_option_adds_a_read_only_allocator():
    plain, with_option = (run("manifests", "--image", "x", *options).stdout for options in ((), ("--read-only",)))
    # Both have the same text up to the last lines before the webhook configuration, which the objects of the option precede.
    assert with_option.startswith(plain[: plain.index("kind: MutatingWebhook")][:-200])
    assert ("drawbridge-read-only" in plain, "drawbridge-read-only" in with_option) == (False, True)


@pytest.mark.parametrize(
    ("level", "options"),
    [
        ("webhook", ()),
        ("readOnly", ("--read-only",)),
        ("bridge", ("--bridge", "--scheduler-image", "y")),
        ("node", ("--bridge", "--scheduler-image", "y", "--node-agent", "--reservations")),
    ],
)
def test_a_level_stands_for_its_options(level, options):
    image = ("--scheduler-image", "y") if level in ("bridge", "node") else ()
    result = run("manifests", "--image", "x", "--level", level, *image)
    assert result.exit_code == 0
    assert result.stdout == run("manifests", "--image", "x", *options).stdout


def test_an_unknown_level_or_missing_scheduler_image_exits_with_2():
    for options, message in (
        (("--level", "nodes"), "'webhook', 'readOnly', 'bridge', 'node'"),
        (("--level", "bridge"), "give --scheduler-image"),
    ):
        result = run("manifests", "--image", "x", *options)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm") / "new" / "chart"
    result = run("manifests", "--helm", folder)
    assert result.exit_code == 0
    assert f"helm install drawbridge {folder}" in result.stdout
    return folder


def key_paths(values, prefix=""):
    """Yield the path of each key, at any depth."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from key_paths(value, f"{prefix}{name}.")


def test_the_schema_of_the_chart_describes_every_value(chart):
    def schema_paths(schema, prefix=""):
        for name, field in schema["properties"].items():
            yield prefix + name
            if "properties" in field and prefix + name != "configuration":
                yield from schema_paths(field, f"{prefix}{name}.")

    schema = json.loads((chart / "values.schema.json").read_text())
    [values] = manifests.parse((chart / "values.yaml").read_text())
    assert set(key_paths(values.object)) == set(schema_paths(schema)) - {"global"}
    assert schema["properties"]["configuration"]["properties"]["mode"]["enum"] == ["enforce", "observe", "off", "warn"]
    assert not schema["properties"]["configuration"]["additionalProperties"]


def test_the_helm_option_excludes_other_options_and_names_chart_values(chart, tmp_path):
    [values] = manifests.parse((chart / "values.yaml").read_text())
    value_paths = set(key_paths(values.object))
    argument_by_option = {
        "only": "rest",
        "level": "bridge",
        "failure_policy": "Fail",
        "ca_bundle": "x.pem",
        "cert_manager": "a/b",
        "api_servers": "10.0.0.1",
    }
    options = [param for param in command.params if param.name not in ("helm", "config", "quiet", "color")]
    assert len(options) > 10
    for option in options:
        arguments = (
            [option.opts[0]]
            if option.is_flag
            else [option.opts[0], argument_by_option.get(option.name, "https://x" if option.name == "url" else "x")]
        )
        result = run("manifests", "--helm", tmp_path / "chart", *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert option.opts[0] in result.stderr
        if option.name != "only":
            [value_path] = re.findall(r"set (\S+) in the values", result.stderr)
            assert value_path in value_paths
    assert not list(tmp_path.iterdir())


def test_a_chart_overwrites_no_file_and_no_folder(tmp_path):
    (tmp_path / "values.yaml").write_text("image: mine")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        result = run("manifests", "--helm", folder)
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
    result = run("manifests", "--helm", tmp_path / "chart", "--config", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_printed_manifests_have_no_unfilled_placeholders():
    """If the name of a placeholder contained the name of a shorter placeholder, filling in the shorter one would break the longer one."""
    text = run("manifests", "--image", "x", "--bridge", "--plugin", "--scheduler-image", "y", "--read-only").stdout
    assert not re.search(r"__[A-Z_]+__", text)
