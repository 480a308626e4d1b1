"""What we write on a pod, so that it can be read, replayed, taken back, and never done twice.

`original` holds the requests as they were, by container, which of them were annotations, and the scheduler's name; `decision` what was done and by which
version; `devices` counts and models for tools that looked at the old keys; `templates` the sealed specs
(`webhook.claims.template`). The seal covers the text of `original`, which in turn carries a digest of `decision` and `devices`.

A pod author may write these too. A record that does not verify is not ours: nothing in it counts, and it is taken off. What verifies
still counts only for containers that have a claim of ours to show for it, because the annotations of one pod can be copied to
another one of the same workload. Offline there is no key: then the claim alone must do, and there is no tenant to protect.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import STRATEGY
from dra.raw import decoded, mapping, members
from dra.wire import Json
from webhook import names
from webhook.claims import template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.translate.pod_view import PodView

# Bytes that all annotations of an object may have together.
LARGEST = 256 * 1024
_DIGITS = 16  # of a digest, in hex


class Original(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the pod asked for before we came: each container's removed keys, and the scheduler if we changed it."""

    containers: dict[str, dict[str, Json]] = {}
    # Of the keys those that stood among the pod's annotations.
    annotations: tuple[str, ...] = ()
    scheduler_name: str | None = None
    # What we set instead, so that a replay needs no configuration.
    scheduled_by: str | None = None
    # Of the two annotations beside it.
    digest: str = ""

    @property
    def removed_annotations(self) -> dict[str, Json]:
        """Give the annotations that were taken off, with their texts."""
        return {key: keys[key] for keys in self.containers.values() for key in self.annotations if key in keys}

    def join(self, later: Original) -> Original:
        """Add what a later round recorded; the first record stands."""
        containers = {**later.containers, **self.containers}
        for name in self.containers.keys() & later.containers.keys():
            containers[name] = {**later.containers[name], **self.containers[name]}
        return Original(
            containers=containers,
            annotations=tuple(dict.fromkeys((*self.annotations, *later.annotations))),
            scheduler_name=self.scheduler_name if self.scheduled_by else later.scheduler_name,
            scheduled_by=later.scheduled_by or self.scheduled_by,
        )


class WrittenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier round of ours wrote on a pod."""

    record: Original = Original()
    decisions: tuple[Json, ...] = ()
    devices: dict[str, Json] = {}
    templates: dict[str, Json] = {}
    # How the bridge is to place the pod, "" where the pod has none or names its own; never read back.
    strategy: str = ""


NOTHING_WRITTEN = WrittenRecord()


def read_record(pod: PodView, namespace: str, keys: Sequence[bytes], *, offline: bool = False) -> WrittenRecord:
    """Read what we wrote on a pod; what another writer wrote in our name counts as nothing."""
    text = pod.annotations.get(names.ORIGINAL)
    sealed = pod.annotations.get(names.TEMPLATES)
    decision, devices = pod.annotations.get(names.DECISION), pod.annotations.get(names.DEVICES)
    record = _original(text)
    if record is None or not _has_claims_for(record, pod):
        return NOTHING_WRITTEN
    templates: dict[str, Json] = {}
    if keys:
        try:
            templates = template.unseal(str(sealed), template.identify_raw(pod.raw, namespace), *keys)
        except template.TemplatesError:
            return NOTHING_WRITTEN
        if record.digest != digest(decision, devices):
            return NOTHING_WRITTEN
    elif not offline:
        return NOTHING_WRITTEN
    return WrittenRecord(
        record=record,
        decisions=tuple(members(mapping(decoded(decision)).get("decisions"))),
        devices=mapping(decoded(devices)),
        templates=templates,
    )


def is_genuine(annotations: Mapping[str, Json], pod: template.SealedPod, keys: Sequence[bytes]) -> bool:
    """Say whether annotations were written by us for this pod. A caller that has read the whole pod also wants to be shown a claim."""
    sealed = str(annotations.get(names.TEMPLATES))
    text = annotations.get(names.ORIGINAL)
    try:
        template.unseal(sealed, pod, *keys)
    except template.TemplatesError:
        return False
    record = _original(text)
    decision = annotations.get(names.DECISION)
    devices = annotations.get(names.DEVICES)
    return record is not None and record.digest == digest(decision, devices)


def annotate(
    pod: PodView, before: WrittenRecord, now: WrittenRecord, *, namespace: str, key: bytes | None
) -> dict[str, Json] | None:
    """Write our annotations: what an earlier round wrote, and what this one adds; the first record of a key stands.

    None if the pod's annotations would be more than the API server takes.
    """
    record = now.record if before is NOTHING_WRITTEN else before.record.join(now.record)
    decisions = (*before.decisions, *now.decisions)
    decision = _text({"version": names.VERSION, "decisions": decisions})
    devices = _text({**before.devices, **now.devices})
    sum_of_both = "" if key is None else digest(decision, devices)
    original = _text(replace(record, digest=sum_of_both))
    annotations: dict[str, Json] = {
        names.DECISION: decision,
        names.DEVICES: devices,
        names.ORIGINAL: original,
    }
    if now.strategy:
        annotations[STRATEGY] = now.strategy
    if key is not None:
        sealed_pod = template.identify_raw(pod.raw, namespace, original)
        templates = {**before.templates, **now.templates}
        annotations[names.TEMPLATES] = template.seal(templates, key, sealed_pod)
    # As the API server counts them (apimachinery: ValidateAnnotationsSize); a letter is four bytes at most.
    together = {**pod.annotations, **annotations}
    letters = 0
    for name, value in together.items():
        letters += len(name) + len(str(value))
    if 4 * letters <= LARGEST:
        return annotations
    size = 0
    for name, value in together.items():
        size += len(name.encode(errors="surrogatepass")) + len(str(value).encode(errors="surrogatepass"))
    return annotations if size <= LARGEST else None


def foreign_annotations(pod: PodView, written: WrittenRecord) -> tuple[str, ...]:
    """Name the annotations that look like ours and are not."""
    if written is not NOTHING_WRITTEN:
        return ()
    return tuple([name for name in names.ANNOTATIONS if name in pod.annotations])


def is_offline_record(pod: PodView) -> bool:
    """Say whether a record is of a file that was translated, which has no seal: its removal needs no warning."""
    record = _original(pod.annotations.get(names.ORIGINAL))
    unsealed = record is not None and not record.digest and names.TEMPLATES not in pod.annotations
    return unsealed and record is not None and _has_claims_for(record, pod)


def removed_annotations(pod: PodView, written: WrittenRecord) -> tuple[str, ...]:
    """Name the annotations that an earlier round took off. A file's record is enough: at most it keeps a label from asking."""
    record = _original(pod.annotations.get(names.ORIGINAL)) if is_offline_record(pod) else written.record
    return record.annotations if record else ()


def digest(decision: Json, devices: Json) -> str:
    """Sum up the two annotations that stand beside a record."""
    both = f"{decision}\0{devices}".encode(errors="surrogatepass")
    return hashlib.sha256(both).hexdigest()[:_DIGITS]


_read = msgspec.json.Decoder(Original).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def _text(value: object) -> str:
    """Write an annotation's value: one line of JSON, the same for the same value."""
    return _encode(value).decode()


def _original(value: Json) -> Original | None:
    if not isinstance(value, str):
        return None
    try:
        return _read(value)
    except (msgspec.DecodeError, RecursionError):
        return None


def _has_claims_for(record: Original, pod: PodView) -> bool:
    """Whether every container of a record has a claim of ours."""
    claimed = {slot.name for slot in pod.slots if any(name.startswith(names.PREFIX) for name in slot.claims)}
    return bool(record.containers) and record.containers.keys() <= claimed
