"""The answer of the running command: its JSON document or its report, with the problems of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rendering.output import complain
from rendering.terminal import escaped_in_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.manifests import InputProblem
    from rendering.report import Report

UNREAD, OUTCOME = f"{__name__}.unread", f"{__name__}.outcome"  # in `click.Context.meta`


def report_unread(problems_: Iterable[InputProblem]) -> None:
    """Print problems and continue: they are added to the JSON answer, and the exit code becomes 2."""
    errors = [as_dict(problem) for problem in problems_]
    print_errors(errors)
    errors_of(click.get_current_context()).extend(errors)


def conclude(outcome: str) -> None:
    """Set the end of the command's last line, which counts the reported problems: what was done in spite of them."""
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
        complain(f"error: {InputProblem(**problem) if 'file' in problem else text}")


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


def write_report(report: Report) -> None:
    """Print a report as `-o html` or `-o markdown`, with unreadable input listed at its end."""
    from msgspec.structs import replace

    from rendering.report import Rows, as_html, as_markdown
    from webhook.names import VERSION

    ctx = click.get_current_context()
    places = [
        (":".join(str(one[key]) for key in ("file", "line", "column") if one.get(key)), one["message"])
        for one in unread()
    ]
    unreadable = Rows(("Where", "Problem"), places, "Not read, so this report may be incomplete")
    whole = replace(report, parts=(*report.parts, unreadable))
    if ctx.params["output"] == "html":
        text = as_html(whole, f"Written by drawbridge {ctx.info_name}, version {VERSION}.")
    else:
        text = as_markdown(whole)
    click.echo(text, nl=False)


def print_for_hosts(text: str) -> None:
    """Print a format for code hosts; no line at all if it is empty."""
    if text:
        click.echo(text)


def as_dict(problem: InputProblem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "remedy": problem.remedy,
    }
