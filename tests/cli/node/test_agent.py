"""How `drawbridge node-agent` reads what it is told, before it asks any server."""

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--allocator", "http://10.0.0.1:9444"), "bearer token would be sent in clear text"),
        (("--allocator", "http://allocator.example:9444"), "bearer token would be sent in clear text"),
        (("--allocator", "allocator.example:9444"), "is not a valid address"),
        (("--allocator", "ftp://127.0.0.1"), "is not a valid address"),
        (("--allocator", "https://"), "is not a valid address"),
        (("--allocator", "https://a:99999"), "is not a valid address"),
        (("--allocator", "https://a/reservations"), "is not a valid address"),
        (("--allocator", "https://a?x"), "is not a valid address"),
        (("--allocator", "https://me@a"), "is not a valid address"),
        (("--allocator", "https://[::1"), "is not a valid address"),
        (("--allocator", "https://a", "--allocator-token", "nowhere"), "nowhere cannot be read"),
        (("--allocator", "https://a", "--allocator-ca", "nowhere"), "nowhere cannot be read"),
        (("--allocator-ca", "nowhere"), "need --allocator"),
    ],
)
def test_an_allocator_that_cannot_be_asked_is_told_of_at_once(options, words):
    done = run("node-agent", "--once", "--node-name", "n", *options)
    assert done.exit_code == 2
    assert words in done.stderr
