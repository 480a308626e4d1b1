"""How `drawbridge node-agent` reads its options, before it connects to a server."""

from tests.cli.running import run
from tests.loops import every


@every(
    ("options", "message"),
    [
        (("--allocator", "http://10.0.0.1:9444"), "in clear text"),
        (("--allocator", "http://allocator.example:9444"), "in clear text"),
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
def test_invalid_allocator_options_exit_with_2_and_an_explanation(options, message):
    result = run("node-agent", "--once", "--node-name", "n", *options)
    assert result.exit_code == 2
    assert message in result.stderr
