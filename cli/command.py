"""The behaviour that all commands share: usage errors, errors on stderr, exit codes, and JSON on every exit.

A command is a function that takes options and returns an `Exit`, declared with `@declare(...)`. Every failure (usage,
input, environment) is handled here: a message on stderr and, under `-o json`, one JSON document on stdout.
"""

from __future__ import annotations

import errno
import traceback
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from analysis.errors import Broken, MissingObject, NoAnswer
from cli import CLOSED_PIPE
from cli.answers import OUTCOME, as_dict, errors_of, print_errors, write_json
from cli.exits import Exit, NoCluster
from cli.options import ALL_NAMESPACES, all_of, gather_files, option, remember
from cli.output import COLOUR, NOTES, QUIET, CommandContext, print_lines, print_to_stderr
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    _Body = Callable[..., Any]

# Remedies for errors of the operating system.
_REMEDIES = {
    errno.EADDRINUSE: "stop the process that uses this address, or choose another one",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
    errno.ENOSPC: "free disk space, or write elsewhere",
    errno.EMFILE: "raise the number of files that a process may have open (ulimit -n)",
}


# Options of other programs, and ours with the same purpose.
_OF_OTHERS = {"--port": "--listen", "--set": "--values"}
# Plain words for click's names of number types in usage errors.
_PLAIN_TYPES = {
    "float range": "a number",
    "float": "a number",
    "integer range": "a whole number",
    "integer": "a whole number",
}


def declare(
    name: str, *, examples: Sequence[str] = (), cls: type[Command] | None = None, **settings: Any
) -> Callable[[_Body], Command]:
    """Declare a command, with the options of all commands."""

    def add(function: _Body) -> Command:
        silence = option("-q", "Print no warnings and no progress.", called="--quiet", remembered_as=QUIET)
        colour = click.option(
            "--color",
            type=click.Choice(("auto", "always", "never")),
            default="auto",
            expose_value=False,
            callback=remember(COLOUR),
            help="When to use colour; `auto`: on a terminal, unless NO_COLOR is set.",
        )
        command = click.command(name, cls=cls or Command, **settings)(all_of((silence, colour))(function))
        command.examples = examples
        return command

    return add


class Command(click.Command):
    """A click command that answers every failure."""

    context_class = CommandContext
    examples: Sequence[str] = ()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        json_wanted = wants_json(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            of_group = f"{parent.info_name} " if parent is not None and isinstance(parent.command, Command) else ""
            problem = complain_of_usage(error, f"{of_group}{info_name} ")
            self._answer_errors(json_wanted, [problem])
            raise click.exceptions.Exit(Exit.BROKEN) from error

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples, whose lines are never wrapped."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gather the options of files; refuse contradictory options."""
        rest = super().parse_args(ctx, args)
        if ctx.params.get("namespace") and ctx.meta.get(ALL_NAMESPACES):
            raise click.UsageError("-n and -A exclude each other", ctx)
        _refuse_misspelt_namespace(ctx)
        if "files" in ctx.params:
            files = ctx.params["files"] = gather_files(ctx.params)
            if files.inventory and not files and "kubeconfig" in ctx.params:
                raise click.UsageError("--inventory needs -f: without -f the command reads the live cluster", ctx)
            if files.values and not files.charts:
                raise click.UsageError("--values needs --chart DIR", ctx)
            if "" in (*files.paths, *files.kustomizations, *files.charts) and not ctx.resilient_parsing:
                raise click.UsageError("a name among the files is empty (is a variable not set?)", ctx)
        return rest

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and exit with the code that it returns."""
        json_wanted = ctx.params.get("output") == "json"
        if "output" in ctx.params:
            ctx.meta[NOTES] = []
        try:
            _refuse_contradictions(ctx)
            try:
                code = super().invoke(ctx)
            finally:
                print_lines(ctx.meta.pop(NOTES, ()), err=True)
            if unread := errors_of(ctx):
                code = Exit.BROKEN
                outcome = ctx.meta.get(OUTCOME, "the answer is incomplete")
                print_to_stderr(f"error: {count_of(len(unread), 'problem')} in the input (see above): {outcome}")
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as failure:  # noqa: BLE001  every failure gets an exit code and an answer
            exceptions = _flatten(failure)
            if isinstance(exceptions[0], BrokenPipeError):  # the reader closed the pipe
                ctx.exit(CLOSED_PIPE)
            code, errors = Exit.FINE, []
            for error in exceptions:
                exit_, described = _explain(error)
                if isinstance(error, NoCluster) and "files" in ctx.params:
                    described[0]["remedy"] += ", or read files with -f"
                code = max(code, exit_)
                errors += [problem for problem in described if problem not in errors]
            print_errors(errors)
            with suppress(OSError):  # stdout may be what failed, and that error is already printed
                self._answer_errors(json_wanted, errors, ctx.params)  # `write_json` adds the errors of the input
        ctx.exit(Exit.FINE if code is None else code)

    def _answer_errors(
        self,
        json_wanted: bool,
        errors: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """Print the empty answer with the errors. A key that is also a parameter, such as `node`, has the value that the user gave."""
        if not json_wanted:
            return
        from cli.schemas import empty_answer

        parameters, empty = given or {}, empty_answer(self.name or "")
        answer = {key: (value == "" and parameters.get(key)) or value for key, value in empty.items()}
        answer["errors"] = errors
        write_json(answer)


class Steps(Command, click.Group):
    """A command whose steps have their own options. Each step has the name of the command, by which its answers have a schema."""


def _refuse_misspelt_namespace(ctx: click.Context) -> None:
    """Refuse an invalid namespace name, which would otherwise look like a namespace without objects."""
    name = ctx.params.get("namespace")
    if not isinstance(name, str) or not name or ctx.resilient_parsing:
        return
    from dra.names import dns_label

    if problem := dns_label(name):
        raise click.UsageError(f"-n: the namespace {name!r} {problem}", ctx)


def _refuse_contradictions(ctx: click.Context) -> None:
    """Refuse files beside a cluster, and `-` in more than one place: standard input can be read once."""
    if ctx.params.get("files") and (ctx.params.get("kubeconfig") or ctx.params.get("context")):
        raise Broken("-f excludes --kubeconfig and --context", "leave out either -f, or the options of the cluster")
    inputs = [ctx.params.get("config") or ()]
    inputs += [ctx.params["files"].paths + ctx.params["files"].inventory] if "files" in ctx.params else []
    if sum(["-"].count(value) if isinstance(value, str) else value.count("-") for value in inputs) > 1:
        raise Broken("standard input (-) is given more than once", "give each further input as a file")


def complain_of_usage(error: click.UsageError, program: str = "") -> dict[str, str]:
    """Print a usage error with the likely correction; `program` is the command's name and a blank."""
    message = error.format_message()
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        similar_choices = get_close_matches(
            message.partition(": ")[2].partition(" is not")[0].strip("'"), error.param.type.choices
        )
        message = message.rstrip(".") + (f": did you mean {similar_choices[0]}?" if similar_choices else "")
    if isinstance(error, click.NoSuchOption):  # click also compares the dashes
        named = {possibility.lstrip("-"): possibility for possibility in error.possibilities or ()}
        similar = [named[close_match] for close_match in get_close_matches(error.option_name.lstrip("-"), named)]
        parameters = error.ctx.command.params if error.ctx is not None else ()
        similar += [
            _OF_OTHERS[error.option_name]
            for parameter in parameters
            if not similar and _OF_OTHERS.get(error.option_name) in parameter.opts
        ]
        message = f"no such option {error.option_name!r}" + (
            f": did you mean {' or '.join(similar)}?" if similar else ""
        )
    for jargon, plain in _PLAIN_TYPES.items():
        message = message.replace(f"is not a valid {jargon}", f"is not {plain}")
    message = " ".join(message.split())  # click lists choices in lines of their own
    message = message[:1].lower() + message[1:].rstrip(".")
    problem = {"message": message, "remedy": f"see `drawbridge {program}--help`"}
    print_errors([problem])
    return problem


def wants_json(args: Sequence[str]) -> bool:
    """Return whether unparsed arguments request JSON."""
    joined = " ".join(args).replace("--output", "-o").replace("=", " ").replace("-o json", "-ojson")
    return "-ojson" in joined.split()


def _flatten(error: Exception) -> list[Exception]:
    """Flatten exception groups."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    exceptions: list[Exception] = []
    for exception in error.exceptions:
        exceptions += _flatten(exception)
    return exceptions


def _explain(error: Exception) -> tuple[Exit, list[dict[str, Any]]]:
    """Return the exit code and the problems that an exception stands for."""
    from cluster.manifests import ManifestError

    if isinstance(error, ManifestError):
        return Exit.BROKEN, [as_dict(problem) for problem in error.problems]
    if isinstance(error, click.UsageError):
        return Exit.BROKEN, [{"message": error.format_message()}]
    if isinstance(error, NoAnswer):
        exits = {Broken: Exit.BROKEN, MissingObject: Exit.REFUSED}
        return exits.get(type(error), Exit.UNDECIDED), [{"message": error.message, "remedy": error.remedy}]
    if isinstance(error, OSError):
        where = error.filename or "environment"
        why = error.strerror or error
        remedy = _REMEDIES.get(error.errno or 0, "")
        return Exit.UNDECIDED, [{"message": f"{where}: {why}", "remedy": remedy}]
    traceback.print_exception(error)
    bug = {
        "message": f"this is a bug in drawbridge: {type(error).__name__}: {error}",
        "remedy": "report it with the traceback above and the input",
    }
    return Exit.UNDECIDED, [bug]
