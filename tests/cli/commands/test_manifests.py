"""`drawbridge manifests`: what it is given must be what an API server takes. What it prints is tests/test_installation.py's."""

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    "url",
    ["garbage", "http://gate.example.com", "https://", "https://u:p@gate", "https://gate?x=1", "https://gate#x", "https://gate:99999", "https://[::1"],
)  # fmt: skip
def test_a_url_that_no_webhook_configuration_can_hold_is_a_broken_usage(url):
    done = run("manifests", "--only", "webhooks", "--url", url)
    assert done.exit_code == 2
    assert url in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("url", ["https://gate.example.com", "https://10.0.0.7:8443/path"])
def test_a_good_url_stands_in_every_webhook(url):
    done = run("manifests", "--only", "webhooks", "--url", url)
    assert done.exit_code == 0
    assert f"url: {url}" in done.stdout


@pytest.mark.parametrize("namespace", ["Not_Valid", "-a", "a-", "a.b", "a" * 64, ""])
def test_a_name_that_no_namespace_can_have_is_a_broken_usage(namespace):
    done = run("manifests", "--namespace", namespace)
    assert done.exit_code == 2
    assert repr(namespace) in done.stderr


@pytest.mark.parametrize(
    "image", ["Bad Image", "reg/x:1:2", "reg/X", "/x", "x/", "x:", "x@sha256:1", "a\nb", "reg//x", "{{ .image }}"]
)
def test_what_no_runtime_takes_for_an_image_is_a_broken_usage(image):
    done = run("manifests", "--image", image)
    assert done.exit_code == 2
    assert repr(image) in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "image",
    ["drawbridge", "reg/x:1", "reg.example.com:5000/a/b-c_d.e:v1.0_x", "[::1]:5000/x", "localhost/x@sha256:" + "0" * 64, "x:1@sha256:" + "a" * 64],
)  # fmt: skip
def test_an_image_is_in_every_deployment_as_it_was_named(image):
    done = run("manifests", "--only", "rest", "--image", image)
    assert done.exit_code == 0
    named = [line.split("image: ")[1].strip("'") for line in done.stdout.splitlines() if " image: " in line]
    assert named == [image] * 3


@pytest.mark.parametrize("certificate", ["x", "/", "a/", "/b", "a/b/c", "A/b", "a b/c"])
def test_what_names_no_certificate_is_a_broken_usage(certificate):
    done = run("manifests", "--only", "webhooks", "--cert-manager", certificate)
    assert done.exit_code == 2
    assert repr(certificate) in done.stderr


def test_a_bundle_without_a_certificate_is_broken_input(tmp_path):
    (tmp_path / "empty.pem").write_text("no certificate")
    for name in ("empty.pem", "missing.pem"):
        done = run("manifests", "--only", "webhooks", "--ca-bundle", tmp_path / name)
        assert done.exit_code == 2
        assert name in done.stderr
        assert done.stdout == ""


def test_a_network_that_is_none_is_broken_usage_whatever_is_printed():
    for only in ((), ("--only", "webhooks")):
        assert run("manifests", "--image", "x", "--api-server", "nonsense", *only).exit_code == 2
