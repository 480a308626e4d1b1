"""`drawbridge man`: the manual page, generated from the help of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.command import ENVIRONMENT, declare
from rendering.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator


@declare("man", examples=("drawbridge man | man -l -", "drawbridge man > drawbridge.1"))
def command() -> Exit:
    """Print the manual page. Show it with `drawbridge man | man -l -`, or save it as drawbridge.1."""
    click.echo("\n".join(_page()))
    return Exit.FINE


def _page() -> Iterator[str]:
    from cli.main import COMMANDS, command_of, main
    from webhook.names import VERSION

    yield f'.TH DRAWBRIDGE 1 "" "drawbridge {VERSION}" "User Commands"'
    yield ".SH NAME"
    yield r"drawbridge \- pods written for device plugins, on Dynamic Resource Allocation"
    yield ".SH SYNOPSIS"
    yield r"\fBdrawbridge\fR \fICOMMAND\fR [\fIOPTIONS\fR]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(main.help or "")
    yield ".SH COMMANDS"
    for name in COMMANDS:
        command_ = command_of(name)
        yield f".SS {name}"
        ctx = click.Context(command_, info_name=f"drawbridge {name}")
        pieces = " ".join(command_.collect_usage_pieces(ctx))
        yield rf"\fBdrawbridge {name}\fR {_text(pieces)}"
        yield ".PP"
        yield from _paragraphs(command_.help or "")
        for parameter in command_.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            options, meaning = record
            yield f".TP\n\\fB{_text(options)}\\fR\n{_text(meaning)}"
        yield ".PP\nExamples:\n.nf"
        yield from map(_text, command_.examples)
        yield ".fi"
    yield ".SH EXIT STATUS"
    for code in Exit:
        yield f".TP\n\\fB{code}\\fR\n{_text(code.meaning)}"
    yield ".SH ENVIRONMENT"
    for variable, meaning in ENVIRONMENT.items():
        yield f".TP\n\\fB{_text(variable)}\\fR\n{_text(meaning)}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield _text(" ".join(paragraph.split()))
        yield ".PP"


def _text(text: str) -> str:
    """Escape a text for roff: backslashes, dashes, and a dot or quote at the start of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
