"""The prepared claims on disk: the checkpoint and the CDI files, changed together and in an order that a kill cannot spoil.

Preparing writes the record first, then the files in which containers read about their devices, then the CDI file; unpreparing removes
files first, then the record. So only a kill leaves a file without a record, and that is swept at the start; a record without its file is
mended there, or when the kubelet asks again, as it does until it has an answer. In between a device is held by one claim too long, never by two.

The disk is waited for where the checkpoint is written, and nowhere else: after a loss of power the files are made again.

Nothing is kept in memory between two calls. In a rolling update two drivers stand beside each other, and either reads what the other wrote.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from node.cdi import answer_of, file_name, is_metadata_of, is_ours, metadata_of, spec_of, uid_of
from node.checkpoint import FOR_ALL, Checkpoint, Prepared, Remove, decode, encode, shown, written
from node.messages import PreparedClaim, UnpreparedClaim

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dra.objects import ResourceClaim
    from node.guard import Guard
    from node.inventory import Machine
    from node.messages import ClaimReference
    from node.service.disk import Disk

    # A claim as it was read, or why that could not be done; None if it is gone.
    Found = Mapping[str, ResourceClaim | str | None]

logger = logging.getLogger("drawbridge.driver")


class Unshown(Exception):  # noqa: N818  what the file is
    """There is nothing to make a container from."""


class Writer(Protocol):
    """Makes CDI files. `there` is the file as it is, None if there is none."""

    def spec(self, record: Prepared, there: bytes | None) -> bytes:
        """Give a claim's CDI file as it should be; Unshown if that cannot be said now."""
        ...

    def told(self, record: Prepared) -> Mapping[str, bytes]:
        """Give what containers can read about a claim's devices, by the names of the files that their CDI file mounts."""
        ...

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim: ...


class MachineWriter:
    def __init__(self, machine: Machine, folder: str) -> None:
        self._machine = machine
        self._folder = folder

    def spec(self, record: Prepared, there: bytes | None) -> bytes:
        del there
        return spec_of(record, self._machine, self._folder)

    def told(self, record: Prepared) -> Mapping[str, bytes]:
        return metadata_of(record, self._machine)

    def answer(self, record: Prepared, spec: bytes) -> PreparedClaim:
        del spec
        return answer_of(record, self._machine.driver)


class PreparedStore:
    def __init__(
        self, machine: Machine, guard: Guard, disk: Disk, state: str, cdi: str, *, writer: Writer | None = None
    ) -> None:
        self._driver = machine.driver
        self._told = f"{state}/metadata"
        self._writer = writer or MachineWriter(machine, self._told)
        self._guard = guard
        self._disk = disk
        self._cdi = cdi
        disk.make_folder(self._told)
        self._file = f"{state}/checkpoint"
        self._lock = f"{state}/lock"
        # How many claims are prepared, as far as we have seen.
        self.count = 0

    def judge_by(self, guard: Guard) -> None:
        """Go by this guard from the next call on: the devices have changed."""
        self._guard = guard

    def prepare(self, references: Iterable[ClaimReference], found: Found) -> dict[str, PreparedClaim]:
        """Prepare claims and answer for each. A claim that fails does not keep the others back."""
        with self._disk.alone(self._lock):
            checkpoint = self._read()
            answers: dict[str, PreparedClaim] = {}
            records: list[Prepared] = []
            for reference in references:
                known = checkpoint.with_(*records)
                judged = self._judge(reference, known, found[reference.uid])
                if isinstance(judged, Prepared):
                    records.append(judged)
                else:
                    answers[reference.uid] = _refused(reference, judged)
            # The records are written first, then the files that containers are made from.
            new = [record for record in records if record.uid not in checkpoint.claims]
            try:
                if new:
                    self._write(checkpoint.with_(*new))
            except OSError as error:
                failed = PreparedClaim(error=f"cannot write down what is prepared: {error}")
                answers |= {record.uid: failed for record in new}
                records = [record for record in records if record not in new]
            for record in records:
                try:
                    spec = self._show(record)
                except OSError as error:
                    answers[record.uid] = PreparedClaim(error=f"cannot write the CDI file: {error}")
                except Unshown as error:
                    answers[record.uid] = _refused(record, str(error))
                else:
                    answers[record.uid] = self._writer.answer(record, spec)
            return answers

    def are_hindered(self, references: Iterable[ClaimReference], found: Found, leaving: Collection[str]) -> bool:
        """Say whether one of these claims is refused for the sake of some that are prepared, and of no others. Nothing is written."""
        with self._disk.alone(self._lock):
            known = self._read()
        without = known.without(*leaving)
        for reference in references:
            claim = found[reference.uid]
            now, then = (self._judge(reference, one, claim) for one in (known, without))
            if isinstance(now, str) and isinstance(then, Prepared):
                return True
        return False

    def unprepare(self, references: Iterable[ClaimReference]) -> dict[str, UnpreparedClaim]:
        """Forget claims. One that is not known is forgotten already."""
        uids = [reference.uid for reference in references]
        try:
            self.forget(uids)
        except OSError as error:
            failed = UnpreparedClaim(error=f"cannot forget what is prepared: {error}")
            return dict.fromkeys(uids, failed)
        return dict.fromkeys(uids, UnpreparedClaim())

    def forget(self, uids: Iterable[str]) -> None:
        with self._disk.alone(self._lock):
            checkpoint = self._read()
            known = [uid for uid in uids if uid in checkpoint.claims]
            if not known:
                return
            for uid in known:
                self._disk.take(Remove(self._path(uid)))
            left = checkpoint.without(*known)
            self._sweep_told(left)
            self._write(left)

    def claims(self) -> Mapping[str, Prepared]:
        with self._disk.alone(self._lock):
            return self._read().claims

    def mend(self) -> None:
        """Repair what a kill, or a reboot that emptied /run, has left: files without a record go, lost ones are written."""
        self._disk.make_folder(self._cdi)
        with self._disk.alone(self._lock):
            checkpoint = self._read()
            driver = self._driver
            for name in self._disk.names(self._cdi):
                if is_ours(driver, name) and uid_of(driver, name) not in checkpoint.claims:
                    logger.warning("a CDI file of a claim that is not prepared goes", extra={"file": name})
                    self._disk.take(Remove(f"{self._cdi}/{name}"))
            self._sweep_told(checkpoint)
            for record in checkpoint.claims.values():
                try:
                    self._show(record)
                except (Unshown, OSError) as error:
                    logger.warning("not mended until the kubelet asks", extra={"uid": record.uid, "why": str(error)})

    def _judge(self, reference: ClaimReference, known: Checkpoint, claim: ResourceClaim | str | None) -> Prepared | str:
        if claim is None:
            return "the claim is gone"
        if isinstance(claim, str):
            # The claim cannot be read now. Its containers run with what it was given, and may be started again.
            return known.claims.get(reference.uid) or claim
        judged = self._guard.judge(claim, reference, known.claims)
        return judged if isinstance(judged, Prepared) else f"{judged.reason}: {judged.message}"

    def _show(self, record: Prepared) -> bytes:
        """Write the file that containers are made from, if it is not there as it should be."""
        path = self._path(record.uid)
        there = self._disk.read(path)
        spec = self._writer.spec(record, there)
        for name, content in self._writer.told(record).items():
            told = f"{self._told}/{name}"
            if self._disk.read(told) != content:
                self._disk.carry_out(shown(told, content, FOR_ALL))
        if there != spec:
            self._disk.carry_out(shown(path, spec))
        return spec

    def _sweep_told(self, checkpoint: Checkpoint) -> None:
        for name in self._disk.names(self._told):
            if not is_metadata_of(name, checkpoint.claims):
                self._disk.take(Remove(f"{self._told}/{name}"))

    def _path(self, uid: str) -> str:
        return f"{self._cdi}/{file_name(self._driver, uid)}"

    def _read(self) -> Checkpoint:
        data = self._disk.read(self._file)
        checkpoint = Checkpoint() if data is None else decode(data)
        self.count = len(checkpoint.claims)
        return checkpoint

    def _write(self, checkpoint: Checkpoint) -> None:
        self._disk.carry_out(written(self._file, encode(checkpoint)))
        self.count = len(checkpoint.claims)


def _refused(reference: ClaimReference | Prepared, why: str) -> PreparedClaim:
    named = f"{reference.namespace}/{reference.name}"
    logger.warning("not prepared", extra={"claim": named, "uid": reference.uid, "why": why})
    return PreparedClaim(error=f"ResourceClaim {named}: {why}")
