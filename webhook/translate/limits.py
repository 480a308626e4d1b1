"""Limits on the work for one pod. A pod that exceeds a limit stays as it is, and the reason is reported. No further work is done for it.

The API server accepts pods with thousands of containers or keys and 256 KiB of product names. A pod that can be served is far below
these limits (docs/translation.md lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects import Position, Role, Unit, leave
from webhook.translate.pod_view import SELECTIONS

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.state import Configuration
    from webhook.translate.pod_view import PodView

CONTAINERS = 256  # containers with device requests: a pod has 128 devices at most
KEYS = 16  # device keys of one container: a GPU has seven MIG profiles
POD_KEYS = 1_024  # device keys of all containers
LETTERS = 64  # letters of an amount: 2^63 has 19 digits
ENTRIES = 256  # entries of a list: a CEL expression holds about 130 products
BYTES = 16 * 1024  # bytes of an annotation: most of it becomes part of a CEL expression, which holds 10 KiB


def exceeded_limit(pod: PodView, configuration: Configuration) -> Reason | None:
    """Return the limit that a pod exceeds; None if it exceeds none."""
    first_key = ""
    requesting_containers = key_count = 0
    for slot in pod.slots:
        if slot.legacy_keys:
            first_key = first_key or slot.legacy_keys[0].key
            requesting_containers += 1
            key_count += len(slot.legacy_keys)
    if requesting_containers > CONTAINERS:
        return leave(first_key, f"{requesting_containers} containers ask for devices, {CONTAINERS} is the maximum")
    if key_count > POD_KEYS:
        return leave(first_key, f"the pod has {key_count} device keys, {POD_KEYS} is the maximum")
    for slot in pod.slots:
        if len(slot.legacy_keys) > KEYS:
            reason = f"container {slot.name} has {len(slot.legacy_keys)} device keys, {KEYS} is the maximum"
            return leave(slot.legacy_keys[0].key, reason)
        for entry in slot.legacy_keys:
            if _is_long(entry.limit) or (entry.request not in (None, entry.limit) and _is_long(entry.request)):
                return leave(entry.key, f"an amount of more than {LETTERS} letters is not read")
    always, terms = pod.selected
    if (terms or always) and first_key and len(always) + sum(map(len, terms)) > SELECTIONS:
        reason = f"the pod has more than {SELECTIONS} requirements on node labels, which is the maximum"
        return leave(first_key, reason)
    for key in sorted(pod.annotations):
        text, rows = pod.annotations[key], configuration.word(Position.ANNOTATION, key)
        if not isinstance(text, str) or all(known.row.role is Role.NONE for known in rows):
            continue
        if len(text) > BYTES:
            return leave(key, f"an annotation of {len(text)} letters is not read, {BYTES} is the maximum")
        if text.count(",") >= ENTRIES and any(known.row.unit is Unit.LIST for known in rows):
            return leave(key, f"a list of more than {ENTRIES} entries is not read")
    return None


def _is_long(amount: object) -> bool:
    if isinstance(amount, str):
        return len(amount) > LETTERS
    return (
        isinstance(amount, int) and amount.bit_length() > 4 * LETTERS
    )  # without writing out the number, which may be long
