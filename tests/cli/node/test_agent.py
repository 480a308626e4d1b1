"""How `drawbridge node-agent` reads what it is told, before it asks any server."""

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--allocator", "http://10.0.0.1:9444"), "its bearer token can be read on the way"),
        (("--allocator", "http://allocator.example:9444"), "its bearer token can be read on the way"),
        (("--allocator", "allocator.example:9444"), "not the address of an allocator"),
        (("--allocator", "ftp://127.0.0.1"), "not the address of an allocator"),
        (("--allocator", "https://"), "not the address of an allocator"),
        (("--allocator", "https://a:99999"), "not the address of an allocator"),
        (("--allocator", "https://a/promises"), "not the address of an allocator"),
        (("--allocator", "https://a?x"), "not the address of an allocator"),
        (("--allocator", "https://me@a"), "not the address of an allocator"),
        (("--allocator", "https://[::1"), "not the address of an allocator"),
        (("--allocator", "https://a", "--allocator-token", "nowhere"), "nowhere cannot be read"),
        (("--allocator", "https://a", "--allocator-ca", "nowhere"), "nowhere cannot be read"),
        (("--allocator-ca", "nowhere"), "none is asked"),
    ],
)
def test_an_allocator_that_cannot_be_asked_is_told_of_at_once(options, words):
    done = run("node-agent", "--once", "--node-name", "n", *options)
    assert done.exit_code == 2
    assert words in done.stderr
