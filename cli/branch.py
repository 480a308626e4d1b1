"""Writes commits on a new branch of a Git repository, without its working tree and its index.

The commits are made from HEAD with an index of their own, and the branch is created by the last command. If the process is killed, the
branch does not exist; the objects without a reference are removed by git's own garbage collection.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.errors import Broken, Failed
from cli.outside import installed
from cluster.manifests import InputProblem, ManifestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_FILE: Final = "100644"
_SUBMODULE: Final = "160000"
_ERROR: Final = re.compile(r"^(?:error|fatal): (.+)", re.MULTILINE)
# Git must not write the user's index, ask for passwords, load objects from a server, or run programs of the repository. A folder of the tree
# may have the form of a bare repository, with settings that name programs.
_ENVIRONMENT: Final = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
# Attributes with which the working tree has another text than HEAD.
_CONVERTING: Final = ("filter", "ident", "working-tree-encoding")
_UNSET: Final = (b"unspecified", b"unset")
_CHANGED: Final = "a filter of git changes this file (.gitattributes), so its text in a commit is not known"
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "safe.bareRepository=explicit",
    "i18n.commitEncoding=UTF-8",
)


class NewCommit(NamedTuple):
    """A commit to make: its message, and the new texts of files; None removes a file. Paths are relative to the repository."""

    message: str
    files: Mapping[str, bytes | None]


class _TreeEntry(NamedTuple):
    mode: str
    blob: str


class Repository:
    """A Git repository, as its HEAD has it."""

    def __init__(self, folder: str) -> None:
        """Open the repository of a folder. Raises Broken if a branch cannot begin at its HEAD."""
        top = _run(folder, "rev-parse", "--show-toplevel")
        if top.returncode:
            why = _reason(top.stderr)
            raise Broken(f"{folder}: git finds no working tree: {why}", "name a folder of a Git repository")
        self.root = os.path.realpath(os.fsdecode(top.stdout.rstrip(b"\n")))
        head = _run(self.root, "rev-parse", "--verify", "--quiet", "HEAD")
        if head.returncode:
            raise Broken(f"{self.root}: the repository has no commit", "commit the files first")
        self.head = head.stdout.decode().strip()
        branch = _run(self.root, "symbolic-ref", "--quiet", "--short", "HEAD")
        if branch.returncode:
            raise Broken(
                f"{self.root}: HEAD is detached at {self.head[:7]}",
                "switch to the branch that the pull request goes to",
            )
        self.branch = branch.stdout.decode().strip()
        self._entries: dict[str, _TreeEntry] = {}
        for line in self._git("ls-tree", "-r", "-z", "--full-tree", self.head).split(b"\0")[:-1]:
            facts, _, path = line.partition(b"\t")
            mode, _, blob = facts.decode().split()
            self._entries[os.fsdecode(path)] = _TreeEntry(mode, blob)

    def _git(self, *arguments: str, data: bytes = b"", index: str = "") -> bytes:
        """Return what a git command prints. Raises Failed with git's own message."""
        done = _run(self.root, *arguments, data=data, index=index)
        if done.returncode:
            raise Failed(f"{self.root}: git {arguments[0]}: {_reason(done.stderr)}", "run git there by hand")
        return done.stdout

    def path_of(self, file: str) -> str:
        """Return the path of a file in the repository; of a symbolic link, that of its target. Raises ManifestError if it leads out."""
        for path in self.paths_of([file]):
            return path
        raise ManifestError([InputProblem(file, "is outside of the repository", f"move the file into {self.root}")])

    def paths_of(self, files: Iterable[str]) -> Iterator[str]:
        """Yield the paths of those files that are in the repository."""
        for file in files:
            path = os.path.relpath(os.path.realpath(file), self.root)
            if not path.startswith("../"):
                yield path

    def texts(self, paths: Iterable[str], read: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Return the contents of files in HEAD and in the working tree. A path that neither has is a new file, and has no content.

        Raises ManifestError if a file cannot be changed, or if HEAD has other contents of the `read` files, from which the changes were made.
        """
        edited = sorted(set(paths))
        heads = self._in_head(sorted(self._entries.keys() & {*edited, *read}))
        working = {path: file.read_bytes() if (file := Path(self.root, path)).is_file() else b"" for path in heads}
        if problems := [*self._unchangeable(edited), *self._differing(heads, working, edited)]:
            raise ManifestError(problems)
        return {path: (heads[path], working[path]) for path in edited if path in heads}

    def _in_head(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of files of HEAD."""
        tracked = list(paths)
        asked = "".join(f"{self._entries[path].blob}\n" for path in tracked).encode()
        answer, begin = self._git("cat-file", "--batch", data=asked), 0
        texts: dict[str, bytes] = {}
        for path in tracked:
            end_of_head = answer.index(b"\n", begin)
            end = end_of_head + 1 + int(answer[begin:end_of_head].split()[2])
            texts[path], begin = answer[end_of_head + 1 : end], end + 1
        return texts

    def _unchangeable(self, paths: Sequence[str]) -> Iterator[InputProblem]:
        """Yield the files that a commit from HEAD cannot change or add."""
        submodules = tuple(f"{path}/" for path, entry in self._entries.items() if entry.mode == _SUBMODULE)
        new = [path for path in paths if path not in self._entries]
        ignored = dict(self._ignored([path for path in new if not path.startswith(submodules)]))
        for path in new:
            file = os.path.relpath(Path(self.root, path))
            if path.startswith(submodules):
                submodule = next(name for name in submodules if path.startswith(name))
                yield InputProblem(file, "belongs to a submodule", f"run the command in {submodule}")
            elif path in ignored:
                yield InputProblem(
                    file, f"git ignores this file: {ignored[path]}", "change the rule, or `git add -f` it"
                )
            elif os.path.lexists(Path(self.root, path)):
                yield InputProblem(file, "HEAD does not have this file", "commit the file, or remove it")

    def _differing(
        self, heads: Mapping[str, bytes], working: Mapping[str, bytes], edited: Collection[str]
    ) -> Iterator[InputProblem]:
        """Yield the files of HEAD that differ in the index or the working tree, other than by the ends of lines.

        Git itself would run the filters of the repository to compare the working tree. A file with a filter is compared only if it is edited.
        """
        arguments = ("--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=all")
        staged = {os.fsdecode(name) for name in self._git("diff-index", *arguments, self.head).split(b"\0")}
        names = b"".join(os.fsencode(path) + b"\0" for path in heads)
        facts = self._git("check-attr", "-z", "--stdin", *_CONVERTING, data=names).split(b"\0")[:-1]
        converted = {
            os.fsdecode(path) for path, _, value in zip(*[iter(facts)] * 3, strict=True) if value not in _UNSET
        }
        for path, head in heads.items():
            file = os.path.relpath(Path(self.root, path))
            is_same = head in (working[path], working[path].replace(b"\r\n", b"\n"))
            if path in staged or not (is_same or path in converted):
                yield InputProblem(file, "differs from HEAD", "commit the change, or `git stash` it")
            elif not is_same and path in edited:
                yield InputProblem(file, _CHANGED, "edit the file by hand first, or set `verdict: by hand` in a plan")

    def _ignored(self, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the ignored files among these, with the rules that ignore them."""
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        done = _run(self.root, "check-ignore", "--verbose", "-z", "--stdin", data=names)
        parts = list(map(os.fsdecode, done.stdout.split(b"\0")[:-1]))
        for source, line, rule, path in zip(*[iter(parts)] * 4, strict=True):
            if not rule.startswith("!"):
                yield path, f"{rule} in {source}:{line}"

    def write_branch(self, name: str, commits: Sequence[NewCommit]) -> tuple[list[str], bool]:
        """Make commits from HEAD, and a branch of them. Return their names, and whether the branch had the same commits already.

        Raises Broken if it has others.
        """
        # Git prints the branch that an abbreviation such as @{-1} means.
        if os.fsdecode(_run(self.root, "check-ref-format", "--branch", name).stdout) != f"{name}\n":
            raise Broken(f"{name}: this is no name of a branch", "choose another one with --branch")
        for ident in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            if (done := _run(self.root, "var", ident)).returncode:
                remedy = "git config user.name NAME; git config user.email ADDRESS"
                raise Broken(f"git does not know the author of commits: {_reason(done.stderr)}", remedy)
        reference = f"refs/heads/{name}"
        existing = _run(self.root, "rev-parse", "--verify", "--quiet", reference).stdout.decode().strip()
        with tempfile.TemporaryDirectory() as folder:
            made = list(self._commits(commits, str(Path(folder, "index"))))
        if existing:
            written = self._git("rev-list", "--reverse", f"{self.head}..{existing}").decode().split()
            if self._contents(written) != self._contents(made):
                remedy = f"choose another branch with --branch, or remove this one if nobody needs its commits: git branch -D {name}"
                raise Broken(f"the branch {name} exists, with other commits", remedy)
            return written, True
        self._git("update-ref", "-m", "drawbridge migrate pr", reference, made[-1], "0" * len(self.head))
        return made, False

    def _contents(self, commits: Iterable[str]) -> list[bytes]:
        return [self._git("show", "--no-patch", "--format=%T%n%B", commit) for commit in commits]

    def _commits(self, commits: Sequence[NewCommit], index: str) -> Iterator[str]:
        """Write the objects of commits, each on top of the one before, and yield their names."""
        parent, absent = self.head, "0" * len(self.head)
        self._git("read-tree", parent, index=index)
        for commit in commits:
            lines = b""
            for path, content in commit.files.items():
                fact = f"0 {absent}"
                if content is not None:
                    mode = self._entries[path].mode if path in self._entries else _FILE
                    blob = self._git("hash-object", "-w", "--no-filters", "--stdin", data=content).decode().strip()
                    fact = f"{mode} {blob}"
                lines += f"{fact}\t".encode() + os.fsencode(path) + b"\0"
            self._git("update-index", "-z", "--index-info", data=lines, index=index)
            tree = self._git("write-tree", index=index).decode().strip()
            message = commit.message.encode()
            parent = self._git("commit-tree", tree, "-p", parent, "-F", "-", data=message).decode().strip()
            yield parent


def unmerged_branch(folder: str, name: str) -> str:
    """Return a branch of this name, here or of a remote, that HEAD does not contain; "" if there is none."""
    places = (f"refs/heads/{name}", f"refs/remotes/*/{name}")
    listed = _run(folder, "for-each-ref", "--format=%(refname:short)", "--no-merged=HEAD", *places)
    return listed.stdout.decode().partition("\n")[0]


def _run(folder: str, *arguments: str, data: bytes = b"", index: str = "") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **_ENVIRONMENT, **({"GIT_INDEX_FILE": index} if index else {})}
    program = installed("git")
    if not program:
        raise Failed("git is not installed", "install git, or add the folder of git to PATH")
    command = [program, "-C", folder, *[part for setting in _SETTINGS for part in ("-c", setting)], *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=False, env=environment)


def _reason(message: bytes) -> str:
    lines = message.decode(errors="replace").strip() or "git gave no reason"
    first = _ERROR.search(lines)
    return first[1] if first else lines.splitlines()[-1]
