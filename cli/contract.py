"""What all commands share: the options that name input, reading it, errors on stderr, exit codes, JSON on every exit.

A command is a function that takes options and returns an `Exit`, declared with `@inputs.command(...)`. Every failure (usage,
input, environment) is handled here: a message on stderr and, under `-o json`, one JSON document on stdout.
"""

from __future__ import annotations

import errno
import math
import traceback
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from analysis.files import (
    CHARTS,
    EXCLUDED,
    KUSTOMIZATIONS,
    VALUES,
    read,
    refuse,
    refuse_files_and_cluster,
    values_of_charts,
    without_collection,
)
from dra.texts import count_of
from rendering.answers import (
    OUTCOME,
    as_dict,
    conclude,
    errors_of,
    print_errors,
    report_unread,
    unread,
    write,
    write_json,
)
from rendering.exits import Broken, CommandEnded, CommandFailed, Exit, MissingObject
from rendering.output import (
    COLOUR,
    QUIET,
    CommandContext,
    called,
    colours,
    complain,
    print_diff,
    print_lines,
    progress,
    quiet,
    warn,
    width,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runtime.http import Address

    _Body = Callable[..., Any]

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# Options that `remember` keeps in `click.Context.meta`: no command takes them as parameters.
_POSITIONAL, _REQUIRED, _ALL_NAMESPACES = (
    f"{__name__}.{name}" for name in ("positional", "required", "all-namespaces")
)

# Remedies for errors of the operating system.
_REMEDIES = {
    errno.EADDRINUSE: "stop the process that uses this address, or choose another one",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
    errno.ENOSPC: "free disk space, or write elsewhere",
    errno.EMFILE: "raise the number of files that a process may have open (ulimit -n)",
}


# What a number is called in a usage error, in place of click's words.
_PLAIN_TYPES = {
    "float range": "a number",
    "float": "a number",
    "integer range": "a whole number",
    "integer": "a whole number",
}
# The environment variables of every command, for the manual page.
ENVIRONMENT = {
    "NO_COLOR": "no colours, unless --color always",
    "TERM": "`dumb` disables colours",
    "COLUMNS": "the width of the terminal",
    "KUBECONFIG": "the kubeconfig, unless --kubeconfig is given",
}


class Command(click.Command):
    """A click command that keeps this contract. `empty` has the keys of its JSON answer with empty values."""

    context_class = CommandContext
    empty: Mapping[str, Any] = {}
    examples: Sequence[str] = ()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        json_wanted = wants_json(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            problem = complain_of_usage(error, f"{info_name} ")
            self._answer_errors(json_wanted, [problem])
            raise click.exceptions.Exit(Exit.BROKEN) from error

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples, whose lines are never wrapped."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add positional files, -k and --chart to the files of `-f`."""
        rest = super().parse_args(ctx, args)
        if ctx.params.get("namespace") and ctx.meta.get(_ALL_NAMESPACES):
            raise click.UsageError("-n and -A exclude each other", ctx)
        _refuse_misspelt_namespace(ctx)
        if "files" in ctx.params:
            from analysis.outside import CHART, KUSTOMIZE

            built = [f"{KUSTOMIZE}{folder}" for folder in ctx.meta.get(KUSTOMIZATIONS, ())]
            built += [f"{CHART}{folder}" for folder in ctx.meta.get(CHARTS, ())]
            if ctx.meta.get(VALUES) and not ctx.meta.get(CHARTS):
                raise click.UsageError("--values needs --chart DIR", ctx)
            ctx.params["files"] += (*ctx.meta.get(_POSITIONAL, ()), *built)
            if "" in ctx.params["files"] and not ctx.resilient_parsing:
                raise click.UsageError("a name among the files is empty (is a variable not set?)", ctx)
            missing = ctx.meta.get(_REQUIRED) and not ctx.params["files"]
            if missing and not ctx.resilient_parsing:
                message = "Missing option '-f' / '--filename': give files, directories, or - for standard input."
                raise click.UsageError(message, ctx)
        return rest

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and exit with the code that it returns."""
        json_wanted = ctx.params.get("output") == "json"
        try:
            _refuse_two_standard_inputs(ctx)
            code = super().invoke(ctx)
            if unread := errors_of(ctx):
                code = Exit.BROKEN
                outcome = ctx.meta.get(OUTCOME, "the answer is incomplete")
                complain(f"error: {count_of(len(unread), 'problem')} in the input (see above): {outcome}")
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as failure:  # noqa: BLE001  every failure gets an exit code and an answer
            every = _flatten(failure)
            if isinstance(every[0], BrokenPipeError):
                raise every[0] from None
            code, errors = Exit.FINE, []
            for error in every:
                exit_, described = _explain(error)
                code = max(code, exit_)
                errors += [problem for problem in described if problem not in errors]
            print_errors(errors)
            with suppress(OSError):  # stdout may be what failed, and that error is already printed
                self._answer_errors(json_wanted, errors, ctx.params)  # `write_json` adds those of the input
        ctx.exit(Exit.FINE if code is None else code)

    def _answer_errors(
        self,
        json_wanted: bool,
        errors: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """Print the empty answer with the errors; keys that are parameters, too (`node`), keep the given value."""
        if not json_wanted:
            return
        named = given or {}
        answer = {key: (value == "" and named.get(key)) or value for key, value in self.empty.items()}
        answer["errors"] = errors
        write_json(answer)


def _refuse_misspelt_namespace(ctx: click.Context) -> None:
    """Refuse a namespace that no cluster can have, before it is taken for one without objects."""
    name = ctx.params.get("namespace")
    if not isinstance(name, str) or not name or ctx.resilient_parsing:
        return
    from dra.names import dns_label

    if problem := dns_label(name):
        raise click.UsageError(f"-n: the namespace {name!r} {problem}", ctx)


def _refuse_two_standard_inputs(ctx: click.Context) -> None:
    """Refuse `-` in more than one place: standard input can be read once."""
    inputs = [ctx.params.get(name) or () for name in ("files", "inventory", "fleet", "config")]
    if sum(["-"].count(value) if isinstance(value, str) else value.count("-") for value in inputs) > 1:
        raise Broken("standard input (-) is given more than once", "give each further input as a file")


def complain_of_usage(error: click.UsageError, program: str = "") -> dict[str, str]:
    """Print a usage error with the likely correction; `of` is the command's name and a blank."""
    message = error.format_message()
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        meant = get_close_matches(
            message.partition(": ")[2].partition(" is not")[0].strip("'"), error.param.type.choices
        )
        message = message.rstrip(".") + (f": did you mean {meant[0]}?" if meant else "")
    if isinstance(error, click.NoSuchOption):  # click also compares the dashes
        named = {possibility.lstrip("-"): possibility for possibility in error.possibilities or ()}
        similar = [named[close_match] for close_match in get_close_matches(error.option_name.lstrip("-"), named)]
        message = f"no such option {error.option_name!r}" + (
            f": did you mean {' or '.join(similar)}?" if similar else ""
        )
    for jargon, plain in _PLAIN_TYPES.items():
        message = message.replace(f"is not a valid {jargon}", f"is not {plain}")
    message = message[:1].lower() + message[1:].rstrip(".")
    problem = {"message": message, "remedy": f"see `drawbridge {program}--help`"}
    print_errors([problem])
    return problem


def command(
    name: str, *, empty: Mapping[str, Any] | None = None, examples: Sequence[str] = (), **settings: Any
) -> Callable[[_Body], Command]:
    """Declare a command, with the options of all commands; `empty` is its JSON answer for invalid input."""

    def declare(function: _Body) -> Command:
        silence = option("-q", "Print no warnings and no progress.", called="--quiet", remembered_as=QUIET)
        colour = click.option(
            "--color",
            type=click.Choice(("auto", "always", "never")),
            default="auto",
            expose_value=False,
            callback=remember(COLOUR),
            help="When to use colour; `auto`: on a terminal, unless NO_COLOR is set.",
        )
        made = click.command(name, cls=Command, **settings)(all_of((silence, colour))(function))
        made.empty = empty or {}
        made.examples = examples
        return made

    return declare


class Number(click.FloatRange):
    """A finite number: click's own type accepts `nan` and `inf`."""

    def __init__(self, least: float | None, most: float | None = None) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


INSTEAD_OF_CLUSTER = "A dump of a cluster, or manifests, instead of a live cluster. May be repeated."


def files(*, required: bool = True, positional: bool = True, help: str = "") -> Decorator:  # noqa: A002  click's own word
    """Add `-f`, `-k`, `--chart` and `--exclude`; with `positional` also files as arguments."""

    def remember_required(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        ctx.meta[_REQUIRED] = required
        return value

    argument = click.argument(
        "positional", nargs=-1, metavar="[FILE|DIR|URL|-]...", expose_value=False, callback=remember(_POSITIONAL)
    )
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            callback=remember_required,
            metavar="FILE|DIR|URL|-",
            help=help or "A manifest, a directory of manifests, a URL, or - for standard input. May be repeated.",
        ),
        *((argument,) if positional else ()),
        option(
            "-k",
            "A directory with a kustomization, to build with kustomize or kubectl. May be repeated.",
            called="--kustomize",
            metavar="DIR",
            multiple=True,
            remembered_as=KUSTOMIZATIONS,
        ),
        option(
            "--chart",
            "A directory with a Helm chart, to render with helm. May be repeated.",
            metavar="DIR",
            multiple=True,
            remembered_as=CHARTS,
        ),
        option(
            "--values",
            "Values for the chart; later files take precedence. May be repeated.",
            metavar="FILE",
            multiple=True,
            remembered_as=VALUES,
        ),
        option(
            "--exclude",
            "Files below directories to skip, in the form of a .gitignore. May be repeated.",
            metavar="PATTERN",
            multiple=True,
            remembered_as=EXCLUDED,
        ),
    )
    return all_of(options)


def option(name: str, help: str, *, called: str = "", remembered_as: str = "", **settings: Any) -> Decorator:  # noqa: A002  click's own word
    """Declare an option: with a `metavar` or a `type` it takes a value, else it is a flag; help shows its default.

    `called` is its second name. With `remembered_as` its value goes to `ctx.meta[remembered_as]` and not to the command.
    """
    if not settings.keys() & {"metavar", "type"}:
        settings["is_flag"] = True
    elif "metavar" in settings and "multiple" not in settings:
        settings.setdefault("default", "")
    if settings.get("default"):
        settings["show_default"] = True
    if remembered_as:
        settings |= {"expose_value": False, "callback": remember(remembered_as)}
    return click.option(*filter(None, (name, called)), help=help, **settings)


def all_of(options: Sequence[Decorator]) -> Decorator:
    """Combine options into one decorator; help lists them in this order."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Make a callback that keeps an option's value in `ctx.meta`."""

    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        ctx.meta[name] = value

    return callback


def inventory() -> Decorator:
    """Add `--inventory`."""
    return option(
        "--inventory",
        "Classes, slices and nodes to decide on, such as a snapshot. May be repeated.",
        metavar="FILE|DIR",
        multiple=True,
    )


def server() -> Decorator:
    """Add `--kubernetes` and `--feature-gates`."""
    from dra.server import NEWEST, OLDEST

    return all_of(
        (
            option(
                "--kubernetes",
                f"The Kubernetes version to answer for, with its default feature gates: 1.{OLDEST} to 1.{NEWEST}.",
                metavar="1.N",
            ),
            option(
                "--feature-gates",
                "Feature gates that differ from that version's defaults, as the API server takes them.",
                metavar="GATE=BOOL,...",
            ),
        )
    )


def reached() -> Decorator:
    """Add `--kubeconfig` and `--context`."""
    return all_of(
        (
            option("--kubeconfig", "Default: the cluster that we run in, else kubectl's.", metavar="FILE"),
            option("--context", "A context of the kubeconfig.", metavar="NAME"),
        )
    )


def log_level() -> Decorator:
    """Add `--log-level`."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    return option("--log-level", "The lowest severity to log.", type=levels, default="info")


def config(
    help: str = "A file with a DrawbridgeConfiguration. Default: the one in the input or in the cluster, else the built-in one.",  # noqa: A002  click's own word
) -> Decorator:
    """Add `--config`."""
    return option("--config", help, metavar="FILE")


def mode_option() -> Decorator:
    """Add `--mode`."""
    return option(
        "--mode",
        "Decide in this mode, instead of those of the namespaces and the configuration.",
        type=click.Choice(("enforce", "warn", "observe", "off")),
    )


def listen(name: str, default: str | None, help: str) -> Decorator:  # noqa: A002  click's own word
    """Add an option for an address to listen on."""
    return click.option(name, type=AddressType(), default=default, show_default=default is not None, help=help)


def metrics_listen(default: str | None) -> Decorator:
    """Add `--metrics-listen`."""
    text = "Where to serve metrics." if default else "Where to serve metrics and answer probes.  [default: nowhere]"
    return listen("--metrics-listen", default, text)


def namespaced(help: str) -> Decorator:  # noqa: A002  click's own word
    """Add `-n`, and `-A` for the default."""
    return all_of(
        (
            click.option("-n", "--namespace", metavar="NAME", default="", help=help),
            option("-A", "All namespaces (the default).", called="--all-namespaces", remembered_as=_ALL_NAMESPACES),
        )
    )


def output(*choices: str, default: str) -> Decorator:
    """Add `-o`."""
    return option("-o", "The output format.", type=click.Choice(choices), default=default, called="--output")


def wants_json(args: Sequence[str]) -> bool:
    """Return whether unparsed arguments ask for JSON."""
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
    if isinstance(error, CommandEnded):
        return error.exit, [{"message": error.message, "remedy": error.remedy}]
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


# Re-exported, so that commands need one import.
__all__ = [
    "Broken",
    "CommandEnded",
    "CommandFailed",
    "Exit",
    "MissingObject",
    "called",
    "colours",
    "complain",
    "conclude",
    "count_of",
    "print_diff",
    "print_lines",
    "progress",
    "quiet",
    "read",
    "refuse",
    "refuse_files_and_cluster",
    "report_unread",
    "unread",
    "values_of_charts",
    "warn",
    "width",
    "without_collection",
    "write",
    "write_json",
]


class AddressType(click.ParamType["Address"]):
    """HOST:PORT, or :PORT for all addresses."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        from runtime.http import Address

        host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        host = host.strip("[]")
        if not host:
            host = "0.0.0.0"  # noqa: S104  an empty host means all addresses
        return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address; a name may resolve to any address."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
