"""Writes the steps of a move as texts of files, and the answer of `drawbridge migrate pr`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from analysis.migration import StepName, commits
from analysis.report import CodeSpan, Report, Rows, Screen
from cli.edited import Change, Edited, edit_text, new_text
from cluster import manifests
from cluster.manifests import InputProblem, ManifestError
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.migration import NewFile, Step
    from analysis.report import Part as ReportPart
    from cli.branch import Repository
    from cluster.manifests import Document

BranchState = Literal["created", "existed", "dry run", "nothing to change"]
REMEDY: Final = (
    "edit the file by hand first, or set `verdict: by hand` in a plan for what changes it, and give that with --plan"
)
_INDENTED_LIST: Final = re.compile(r"^( *)[^\s#-][^\n]*:\n\1  - ", re.MULTILINE)
_LIST: Final = re.compile(r"^( *)[^\s#-][^\n]*:\n\1- ", re.MULTILINE)
_CONTENT: Final = re.compile(r"^(?!---|\s*(#|$))", re.MULTILINE)  # a line that is no comment and no separator


class StepFiles(NamedTuple):
    """The files that a step changes, by their paths in the repository."""

    edits: dict[str, Edited]
    contents: dict[str, bytes | None]  # for git; None: the file goes


class _HeadFile(NamedTuple):
    """A file of HEAD, as the working tree has it."""

    name: str  # for messages
    text: str
    has_line_feeds: bool  # in HEAD, although the working tree has CRLF


def write_steps(steps: Sequence[Step], documents: Sequence[Document], repository: Repository) -> list[StepFiles]:
    """Return the files that each step changes, with the editor of `translate --in-place`. Raises ManifestError."""
    numbers = {edit.number for step in steps for edit in step.edits}
    new_paths = {new.path for step in steps for new in step.new}
    names = {repository.path_of(name): name for name in (*(documents[number].file for number in numbers), *new_paths)}
    heads = repository.texts(names, repository.paths_of(document.file for document in documents))
    files = {path: _HeadFile(names[path], working.decode(), working != head) for path, (head, working) in heads.items()}
    texts: dict[str, str | None] = {path: file.text for path, file in files.items()}
    changes: dict[str, dict[int, Change]] = {}  # by file and first line of the document
    written = []
    for step in steps:
        before = dict(texts)
        for number, wanted in step.edits:
            document = documents[number]
            path = repository.path_of(document.file)
            changes.setdefault(path, {})[document.first_line] = Change(document, wanted)
            texts[path] = _edited(files[path], [change for _, change in sorted(changes[path].items())])
        for new in step.new:
            path = repository.path_of(new.path)
            if path in files:
                raise ManifestError([InputProblem(new.path, "this file exists already", REMEDY)])
            texts[path] = _new_text(new, documents)
        written.append(_step_files(before, texts, files, names))
    return written


def _edited(file: _HeadFile, changes: Sequence[Change]) -> str | None:
    """Return the text of a file after changes of its documents; None if no document remains."""
    try:
        text = edit_text(file.name, file.text, changes)
    except ManifestError as error:
        raise ManifestError(replace(problem, remedy=REMEDY) for problem in error.problems) from error
    return text if _CONTENT.search(text) else None


def _new_text(file: NewFile, documents: Sequence[Document]) -> str:
    """Write a new file like the document that it names, or in the style of the files beside it, or else of the whole tree."""
    if file.like is not None:
        return new_text(file.objects, documents[file.like])
    folder = os.path.dirname(file.path)  # noqa: PTH120  as paths of documents are written
    beside = [document for document in documents if os.path.dirname(document.file) == folder] or documents  # noqa: PTH120
    first = {document.file: document for document in reversed(beside)}.values()
    begins = sum(document.first_line > 1 for document in first) * 2 > len(first)
    indents = sum(
        1 if _INDENTED_LIST.search(document.text) else -bool(_LIST.search(document.text)) for document in beside
    )
    return ("---\n" if begins else "") + manifests.dump(file.objects, "  " if indents > 0 else "")


def _step_files(
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
    files: Mapping[str, _HeadFile],
    names: Mapping[str, str],
) -> StepFiles:
    edits: dict[str, Edited] = {}
    contents: dict[str, bytes | None] = {}
    for path, text in sorted(after.items()):
        old = before.get(path)
        if text == old:
            continue
        edits[path] = Edited(names[path], old or "", text or "", is_new=old is None, is_removed=text is None)
        git_text = text.replace("\r\n", "\n") if text and path in files and files[path].has_line_feeds else text
        contents[path] = None if git_text is None else git_text.encode()
    return StepFiles(edits, contents)


# The answer


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a commit."""

    path: str  # in the repository
    change: Literal["added", "edited", "removed"]


class StepCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit of a step."""

    step: StepName
    commit: str  # empty with --dry-run
    message: str
    files: list[ChangedFile]


class PullRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge migrate pr -o json`."""

    branch: str
    base: str  # the branch of HEAD
    state: BranchState
    commits: list[StepCommit]
    stays: list[str]  # why plugins stay, by driver
    not_moved: list[str]  # consumers that keep their keys, with the reasons
    not_rendered: list[str]  # charts and kustomizations whose objects were not compared


def commit_of(step: Step, commit: str, message: str, files: StepFiles) -> StepCommit:
    """Return the commit of a step, as the answer has it."""
    changed = [
        ChangedFile(path=path, change="added" if edited.is_new else "removed" if edited.is_removed else "edited")
        for path, edited in files.edits.items()
    ]
    return StepCommit(step=step.name, commit=commit, message=message, files=changed)


def report(answer: PullRequest, first: Sequence[str], nothing: str) -> Report:
    """Make the report for people: the first lines, and the commits; `nothing` says why there is nothing to change."""
    parts: list[ReportPart] = []
    if len(answer.stays) > 1:
        parts.append(Screen(answer.stays, "The device plugin stays"))
    for commit in answer.commits:
        subject = commit.message.partition("\n")[0]
        rows = [(file.change, CodeSpan(file.path)) for file in commit.files]
        parts.append(Rows(("", ""), rows, " ".join(filter(None, (commit.commit[:7], f"{commit.step}: {subject}")))))
    for title, lines in (
        (commits.NOT_MOVED, answer.not_moved),
        ("Not rendered, so their objects were not compared", answer.not_rendered),
    ):
        if lines:
            parts.append(Screen([f"- {line}" for line in lines], title))
    of_branch = f"branch {answer.branch}, from {answer.base}"
    files = count_of(sum(len(commit.files) for commit in answer.commits), "file")
    number = count_of(len(answer.commits), "commit")
    outcome = {
        "nothing to change": nothing,
        "dry run": f"{of_branch}: would have {number} with {files}",
        "existed": f"{of_branch} has these commits already",
        "created": f"{of_branch}: {number} with {files}",
    }[answer.state]
    steps = [
        f"git log -p --reverse {answer.base}..{answer.branch}",
        f"git push -u origin {answer.branch}",
        f"open a pull request to {answer.base}; the commit `switch` has the text for it",
    ]
    if answer.state in ("existed", "created"):
        parts.append(Screen(steps, "Next"))
    return Report("drawbridge migrate pr", parts, "\n".join([*first, outcome]))
