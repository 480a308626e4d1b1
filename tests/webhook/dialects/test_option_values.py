"""Each claim of a pod requests a device, with every number that the configuration accepts for an option of a dialect."""

from itertools import combinations
from typing import Annotated, get_args, get_origin

import msgspec
import pytest

from tests.webhook.pods import pod, verdict_of
from tests.webhook.state.configurations import HEAD
from webhook.dialects import VOCABULARIES
from webhook.dialects.table import Position
from webhook.state import read_configuration

NUMBERS = (0, 1, 8, 99, 2**31 - 1, 2**63)


def options():
    for vocabulary in VOCABULARIES:
        for field in msgspec.structs.fields(vocabulary.options):
            if get_origin(field.type) is Annotated and get_args(field.type)[0] in (int, float):
                yield pytest.param(vocabulary, field.encode_name, id=f"{vocabulary.table.name} {field.encode_name}")


def pods(table):
    """Yield pods that request one or two resources of a dialect, 0, 1 or 100 of each."""
    keys = [row.name.replace("<", "").replace(">", "") for row in table.keys if row.place is Position.RESOURCE]
    first_keys = keys[:8]  # 8 keys have 28 pairs
    for requested_keys in (*combinations(first_keys, 1), *combinations(first_keys, 2)):
        for amount in (0, 1, 100):
            yield pod(dict.fromkeys(requested_keys, amount))


@pytest.mark.parametrize(("vocabulary", "field"), list(options()))
def test_claims_request_a_device_with_every_accepted_number(vocabulary, field):
    name = vocabulary.table.name
    accepted = [number for number in NUMBERS if read_configuration({**HEAD, name: {field: number}})[0] is not None]
    assert accepted
    verdicts = [
        verdict_of(manifest, **{name: {field: number}}) for number in accepted for manifest in pods(vocabulary.table)
    ]
    assert verdicts
    for verdict in verdicts:
        assert all(template["spec"]["devices"]["requests"] for template in verdict.templates.values())
