"""Events of a pod do not name claims or pods in other namespaces."""

import pytest

from allocator.decisions import redact
from dra.objects import ObjectMeta, ResourceClaim
from dra.stock import Stock

STOCK_OF_TWO_NAMESPACES = Stock.of(
    claims=[ResourceClaim(metadata=ObjectMeta(name=name, namespace=name[0])) for name in ("a1", "b1")]
)


@pytest.mark.parametrize(
    ("message", "redacted"),
    [
        ("held by claim a/a1", "held by claim a/a1"),
        ("held by claim b/b1", "held by a claim of another namespace"),
        ("held by claim b/deleted", "held by a claim of another namespace"),
        ("claim b/b1 or claim a/a1", "a claim of another namespace or claim a/a1"),
        ("held by pod a/p", "held by pod a/p"),
        ("would fit once pod b/p ends", "would fit once a pod of another namespace ends"),
        ("no node has example.com/gpu", "no node has example.com/gpu"),
    ],
)
def test_a_message_omits_names_of_objects_in_other_namespaces(message, redacted):
    assert redact(message, STOCK_OF_TWO_NAMESPACES, "a") == redacted
