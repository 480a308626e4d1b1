"""Prints the answer of the running command in the format of `-o`, with the problems of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from analysis.printable import printable
from cli.output import colours, print_lines, print_to_stderr, warn, width
from cli.terminal import coloured, escaped_in_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from analysis.findings import ObjectFindings
    from analysis.loading import Unread
    from analysis.report import Report
    from cluster.manifests import InputProblem


_WITH_PROBLEMS = ("sarif", "github", "junit", "markdown")  # formats that are written also if nothing was read
UNREAD, OUTCOME = f"{__name__}.unread", f"{__name__}.outcome"  # keys of `click.Context.meta`


def report_problems(problems: Iterable[InputProblem], *, are_all: bool = False) -> None:
    """Print problems of the input, and keep them for the answer. The exit code will be 2.

    If they are all that was read, raise ManifestError: a person would read an answer about nothing beside the error.
    """
    from cluster.manifests import ManifestError

    ctx, listed = click.get_current_context(), list(problems)
    if listed and are_all and ctx.params.get("output") not in _WITH_PROBLEMS:
        raise ManifestError(listed)
    errors = [as_dict(problem) for problem in listed]
    print_errors(errors)
    errors_of(ctx).extend(errors)


def conclude(outcome: str) -> None:
    """Set the end of the command's last line, which has the number of problems and then says what the command did despite them."""
    click.get_current_context().meta[OUTCOME] = outcome


def unread() -> list[dict[str, Any]]:
    """Return the problems reported so far by the running command."""
    ctx = click.get_current_context(silent=True)
    return errors_of(ctx) if ctx else []


def errors_of(ctx: click.Context) -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = ctx.meta.setdefault(UNREAD, [])
    return errors


def print_errors(errors: Iterable[Mapping[str, Any]]) -> None:
    from cluster.manifests import InputProblem

    for problem in errors:
        remedy = problem.get("remedy")
        text = f"{problem['message']} ({remedy})" if remedy else problem["message"]
        print_to_stderr(f"error: {InputProblem(**problem) if 'file' in problem else text}")


def write_json(value: Any) -> None:
    """Print the JSON document of an answer; under `-o json` with the problems reported so far."""
    import msgspec

    ctx = click.get_current_context(silent=True)
    if (
        ctx is not None
        and isinstance(value, dict)
        and ctx.params.get("output") == "json"
        and (errors := errors_of(ctx))
    ):
        value = {**value, "errors": [*errors, *value.get("errors", ())]}
    # enc_hook: quantities are the only type that msgspec cannot encode.
    click.echo(escaped_in_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()))


def write(
    output_format: str,
    report: Callable[[], Report],
    document: Callable[[], Mapping[str, Any]],
    *,
    findings: Callable[[], Sequence[ObjectFindings]] = tuple,
    unread: Sequence[Unread] | None = None,
) -> None:
    """Write an answer in a format of `-o`. Only the function that this format needs is called.

    Text and Markdown are made from the report, JSON from the document, and SARIF, annotations and JUnit from the findings. `unread` are
    the kinds that could not be read.
    """
    from cli import formats

    if output_format not in ("json", "markdown"):
        for unread_kind in unread or ():
            warn(f"not read: {unread_kind.kind}: {unread_kind.reason}")
    match output_format:
        case "json":
            write_json({**document(), **({} if unread is None else {"unread": unread})})
        case "sarif" | "github" | "junit":
            ctx = click.get_current_context()
            if text := formats.for_hosts(output_format, findings(), str(ctx.info_name), errors_of(ctx)):
                click.echo(text)
        case "markdown":
            _write_markdown(report(), [(unread_kind.kind, unread_kind.reason) for unread_kind in unread or ()])
        case _:
            print_report(report())


def print_report(report: Report) -> None:
    """Print a report for people: its summary, and with a blank line above each title and below the summary, its parts."""
    from cli.reports import as_text

    parts = [(title, lines) for title, lines in as_text(report, width()) if any(lines)]
    for number, (title, lines) in enumerate(parts):
        if number and (title or (number == 1 and report.summary)):
            print_lines([""])
        if title:
            print_lines([coloured(printable(title), "bold" if colours() else "")], styled=True)
        print_lines(lines)


def _write_markdown(report: Report, unread: Sequence[tuple[str, str]]) -> None:
    """Print a report as Markdown, with a table of the unread input at its end."""
    from msgspec.structs import replace

    from analysis.report import Rows
    from cli.reports import as_markdown

    ctx = click.get_current_context()
    places = [
        (":".join(str(error[key]) for key in ("file", "line", "column") if error.get(key)), error["message"])
        for error in errors_of(ctx)
    ]
    unreadable = Rows(("Where", "Problem"), [*unread, *places], "Not read, so this report may be incomplete")
    click.echo(as_markdown(replace(report, parts=(*report.parts, unreadable))), nl=False)


def as_dict(problem: InputProblem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "remedy": problem.remedy,
    }
