"""The prepared claims on disk: the checkpoint and the CDI files, written in an order that is safe if the driver is killed.

To prepare a claim, the driver writes the claim's record in the checkpoint, then the metadata files, then the CDI file. To unprepare it, the
driver deletes the CDI file, then the record. A driver that is killed in between leaves a record without a file, or a file without a record:
`repair` fixes both cases at the next start, and the kubelet repeats its call until it gets an answer. Meanwhile a claim may hold a device
too long, but two claims never hold it together.

Only the checkpoint is flushed to disk: after a loss of power the other files are written again, from what the records say that the claims
were given. If the machine does not offer that hardware now, an existing file stays, and a missing file is not written, so that no container
starts without its devices.

Nothing is cached between two calls, because in a rolling update two instances of the driver change the same files.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from node.cdi import answer_of, file_name, is_metadata_of, is_ours, metadata_of, spec_of, uid_of
from node.checkpoint import FOR_ALL, Checkpoint, Prepared, Remove, decode, durable_steps, encode, unflushed_steps
from node.messages import PreparedClaim, UnpreparedClaim

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from dra.objects import ResourceClaim
    from node.guard import Guard
    from node.messages import ClaimReference
    from node.service.disk import Disk

    # By UID: the claim, or why the claim could not be read; None if the claim is deleted.
    Found = Mapping[str, ResourceClaim | str | None]

logger = logging.getLogger("drawbridge.driver")


class SpecUnavailable(Exception):  # noqa: N818  names the problem
    """The CDI file of a claim cannot be made now; the message says why."""


class Writer(Protocol):
    """Makes the files of prepared claims."""

    def spec(self, record: Prepared, current: bytes | None) -> bytes:
        """Return a claim's CDI file, given its `current` content, or raise SpecUnavailable."""
        ...

    def metadata(self, record: Prepared) -> Mapping[str, bytes]:
        """Return a claim's metadata files by name."""
        ...

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim: ...


class MachineWriter:
    def __init__(self, guard: Callable[[], Guard], folder: str) -> None:
        self._guard = guard
        self._folder = folder

    def spec(self, record: Prepared, current: bytes | None) -> bytes:
        guard = self._guard()
        missing = guard.missing(record)
        if missing and current is None:
            raise SpecUnavailable(f"the machine does not offer {missing} now as this claim was given it")
        return current if current and not record.is_known else spec_of(record, guard.machine.driver, self._folder)

    def metadata(self, record: Prepared) -> Mapping[str, bytes]:
        return metadata_of(record, self._guard().machine.driver) if record.is_known else {}

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim:
        del spec
        return answer_of(record, self._guard().machine.driver)


class PreparedStore:
    def __init__(
        self,
        guard: Guard,
        disk: Disk,
        state: str,
        cdi: str,
        *,
        pods: str,
        writer: Writer | None = None,
    ) -> None:
        self._driver = guard.machine.driver
        self._metadata = f"{state}/metadata"
        self._writer = writer or MachineWriter(lambda: self.guard, self._metadata)
        self.guard = guard
        self._disk = disk
        self._cdi = cdi
        self._pods = pods
        disk.make_folder(self._metadata)
        self._file = f"{state}/checkpoint"
        self._lock = f"{state}/lock"
        self.prepared: Mapping[str, Prepared] = {}  # by UID, when the checkpoint was last read or written

    def prepare(self, references: Iterable[ClaimReference], claims: Found) -> dict[str, PreparedClaim]:
        """Prepare claims, and return the answer for each claim. One claim's failure does not affect the other claims."""
        with self._disk.locked(self._lock):
            checkpoint = self._read()
            answers: dict[str, PreparedClaim] = {}
            records: list[Prepared] = []
            for reference in references:
                checkpoint_so_far = checkpoint.with_records(*records)
                verdict = self._judge(reference, checkpoint_so_far, claims[reference.uid])
                if isinstance(verdict, Prepared):
                    records.append(self._renewed(verdict))
                else:
                    answers[reference.uid] = _refused(reference, verdict)
            new = [record for record in records if record != checkpoint.claims.get(record.uid)]
            try:
                if new:
                    self._write(checkpoint.with_records(*new))
            except OSError as error:
                failed = PreparedClaim(error=f"cannot write the checkpoint: {error}")
                answers |= {record.uid: failed for record in new}
                records = [record for record in records if record not in new]
            for record in records:
                try:
                    spec = self._write_files(record)
                except OSError as error:
                    answers[record.uid] = PreparedClaim(error=f"cannot write the CDI file: {error}")
                except SpecUnavailable as error:
                    answers[record.uid] = _refused(record, str(error))
                else:
                    answers[record.uid] = self._writer.answer(record, spec)
            return answers

    def is_blocked_only_by(self, leaving: Collection[str], references: Iterable[ClaimReference], claims: Found) -> bool:
        """Report whether one of these claims is refused now, but would be prepared if the `leaving` claims were unprepared. Writes nothing."""
        with self._disk.locked(self._lock):
            checkpoint = self._read()
        remaining = checkpoint.without(*leaving)
        for reference in references:
            claim = claims[reference.uid]
            with_leaving, without_leaving = (
                self._judge(reference, prepared, claim) for prepared in (checkpoint, remaining)
            )
            if isinstance(with_leaving, str) and isinstance(without_leaving, Prepared):
                return True
        return False

    def unprepare(self, references: Iterable[ClaimReference]) -> dict[str, UnpreparedClaim]:
        """Unprepare claims. An unknown claim counts as unprepared."""
        uids = [reference.uid for reference in references]
        try:
            self.forget(uids)
        except OSError as error:
            failed = UnpreparedClaim(error=f"cannot unprepare it: {error}")
            return dict.fromkeys(uids, failed)
        return dict.fromkeys(uids, UnpreparedClaim())

    def forget(self, uids: Iterable[str]) -> None:
        """Delete the files and records of claims."""
        with self._disk.locked(self._lock):
            checkpoint = self._read()
            prepared_uids = [uid for uid in uids if uid in checkpoint.claims]
            if not prepared_uids:
                return
            for uid in prepared_uids:
                self._disk.take(Remove(self._path(uid)))
            remaining = checkpoint.without(*prepared_uids)
            self._sweep_metadata(remaining)
            self._write(remaining)

    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that have a folder. The kubelet removes it after the containers have ended, also of a pod deleted by force."""
        return frozenset(self._disk.names(self._pods))

    def set_pods(self, pods: Mapping[str, Collection[str]]) -> None:
        """Record the pods of claims, by UID, that are still prepared."""
        with self._disk.locked(self._lock):
            checkpoint = self._read()
            records = [
                msgspec.structs.replace(record, pods=tuple(sorted(pods[uid])))
                for uid, record in checkpoint.claims.items()
                if uid in pods
            ]
            if records:
                self._write(checkpoint.with_records(*records))

    def claims(self) -> Mapping[str, Prepared]:
        with self._disk.locked(self._lock):
            return self._read().claims

    def repair(self) -> None:
        """Delete files without a record and write missing files, after the driver was killed or a reboot emptied /run."""
        self._disk.make_folder(self._cdi)
        with self._disk.locked(self._lock):
            checkpoint = self._read()
            driver = self._driver
            for name in self._disk.names(self._cdi):
                if is_ours(driver, name) and uid_of(driver, name) not in checkpoint.claims:
                    logger.warning("deleting the CDI file of a claim that is not prepared", extra={"file": name})
                    self._disk.take(Remove(f"{self._cdi}/{name}"))
            self._sweep_metadata(checkpoint)
            self._repair(checkpoint, checkpoint.claims.values())

    def restore(self) -> bool:
        """Write the files of claims of which a file is missing, and report whether all files exist now.

        The kubelet does not prepare the claim of a running pod again, so without the file a container of the pod could not restart. Files
        with another content are not written again: in a rolling update the other version of the driver may have written them.
        """
        for folder in (self._cdi, self._metadata):
            self._disk.make_folder(folder)
        with self._disk.locked(self._lock):
            checkpoint = self._read()
            incomplete = [record for record in checkpoint.claims.values() if self._is_incomplete(record)]
            return self._repair(checkpoint, incomplete)

    def _is_incomplete(self, record: Prepared) -> bool:
        """Report whether a file of a claim is missing, or the record has no hardware."""
        paths = [self._path(record.uid), *(f"{self._metadata}/{name}" for name in self._writer.metadata(record))]
        return not record.is_known or any(self._disk.read(path) is None for path in paths)

    def _repair(self, checkpoint: Checkpoint, records: Iterable[Prepared]) -> bool:
        """Write the files of records, and report whether all could be written."""
        renewed = [self._renewed(record) for record in records]
        changed = [record for record in renewed if record != checkpoint.claims[record.uid]]
        try:
            if changed:
                self._write(checkpoint.with_records(*changed))
        except OSError as error:
            logger.warning("cannot write the checkpoint", extra={"why": str(error)})
            renewed = [checkpoint.claims[record.uid] for record in renewed]
        repaired = True
        for record in renewed:
            try:
                self._write_files(record)
            except (SpecUnavailable, OSError) as error:
                extra = {"uid": record.uid, "why": str(error)}
                logger.warning("cannot write the CDI file of a prepared claim", extra=extra)
                repaired = False
        return repaired

    def _renewed(self, record: Prepared) -> Prepared:
        """Return the record of a claim without a CDI file, as after a reboot, with how containers reach the claim's hardware now.

        Also complete a record of version 1, which has only names. If its CDI file has something else than the device of that name, the
        inventory has changed since, and the hardware stays unknown.
        """
        current = self._disk.read(self._path(record.uid))
        if current is None or not record.is_known:
            renewed = self.guard.renewed(record)
            with suppress(SpecUnavailable):
                if renewed.is_known and (current is None or current == self._writer.spec(renewed, current)):
                    return renewed
        return record

    def _judge(
        self, reference: ClaimReference, checkpoint: Checkpoint, claim: ResourceClaim | str | None
    ) -> Prepared | str:
        if claim is None:
            return "the claim is gone"
        if isinstance(claim, str):
            # The claim cannot be read now. If it is prepared, its record is the answer, so that its containers can restart.
            return checkpoint.claims.get(reference.uid) or claim
        verdict = self.guard.check_claim(claim, reference, checkpoint.claims)
        return verdict if isinstance(verdict, Prepared) else f"{verdict.reason}: {verdict.message}"

    def _write_files(self, record: Prepared) -> bytes:
        """Write a claim's metadata files and CDI file where they are missing or differ; return the CDI file."""
        path = self._path(record.uid)
        current = self._disk.read(path)
        spec = self._writer.spec(record, current)
        for name, content in self._writer.metadata(record).items():
            metadata_path = f"{self._metadata}/{name}"
            if self._disk.read(metadata_path) != content:
                self._disk.carry_out(unflushed_steps(metadata_path, content, FOR_ALL))
        if current != spec:
            self._disk.carry_out(unflushed_steps(path, spec))
        return spec

    def _sweep_metadata(self, checkpoint: Checkpoint) -> None:
        for name in self._disk.names(self._metadata):
            if not is_metadata_of(name, checkpoint.claims):
                self._disk.take(Remove(f"{self._metadata}/{name}"))

    def _path(self, uid: str) -> str:
        return f"{self._cdi}/{file_name(self._driver, uid)}"

    def _read(self) -> Checkpoint:
        data = self._disk.read(self._file)
        checkpoint = Checkpoint() if data is None else decode(data)
        self.prepared = checkpoint.claims
        return checkpoint

    def _write(self, checkpoint: Checkpoint) -> None:
        self._disk.carry_out(durable_steps(self._file, encode(checkpoint)))
        self.prepared = checkpoint.claims


def _refused(reference: ClaimReference | Prepared, why: str) -> PreparedClaim:
    claim_name = f"{reference.namespace}/{reference.name}"
    logger.warning("not prepared", extra={"claim": claim_name, "uid": reference.uid, "why": why})
    return PreparedClaim(error=f"ResourceClaim {claim_name}: {why}")
