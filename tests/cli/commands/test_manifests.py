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
