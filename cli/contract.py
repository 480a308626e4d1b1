"""What every command has in common at its rim: `-f`, reading, errors on stderr, exit codes, JSON on every exit.

A command is a function that takes options and returns an `Exit`; it is declared with `@inputs.command(...)`. Whatever goes
wrong on the way, in the usage, in the files or in the world, ends here: text for people on stderr, and on stdout, when
`-o json` was said, the one JSON document that scripts wait for.
"""

from __future__ import annotations

import errno
import gc
import math
import traceback
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import click

from cli.output import (
    COLOUR,
    QUIET,
    CommandContext,
    called,
    colours,
    complain,
    progress,
    quiet,
    tell,
    tell_change,
    warn,
    width,
)
from cli.terminal import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cli.report import Report
    from cluster.manifests import Document, InputProblem, Keep
    from runtime.http import Address

    _Body = Callable[..., Any]

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


_BESIDE, _BUILT, _CHARTS, _VALUES, _EXCLUDED, _NEEDED, _EVERYWHERE = (
    f"{__name__}.{name}" for name in ("beside", "built", "charts", "values", "excluded", "needed", "everywhere")
)


# What helps where the system says no.
_REMEDIES = {
    errno.EADDRINUSE: "stop the process that uses that address, or say another address",
    errno.EADDRNOTAVAIL: "say an address of this machine",
    errno.ENOSPC: "make room, or write elsewhere",
    errno.EMFILE: "raise the number of files that a process may have open (ulimit -n)",
}


class Exit(IntEnum):
    """What the exit code of every command says."""

    FINE = 0
    REFUSED = 1
    BROKEN = 2
    UNDECIDED = 3

    @property
    def meaning(self) -> str:
        """What it says to people."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.FINE: "fine",
    Exit.REFUSED: "refused, infeasible, or findings at or above --fail-on",
    Exit.BROKEN: "the input or the usage is broken",
    Exit.UNDECIDED: "no decision was reached, or the environment failed",
}
# What every command reads of its environment.
ENVIRONMENT = {
    "NO_COLOR": "no colours, unless --color always",
    "TERM": "dumb means no colours",
    "COLUMNS": "how wide a terminal is taken to be",
    "KUBECONFIG": "the kubeconfig, where --kubeconfig names none",
}


class CommandEnded(Exception):  # noqa: N818  what has happened
    """A command has ended early, with an exit and a message; `remedy` says what to do."""

    exit = Exit.UNDECIDED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Broken(CommandEnded):
    """The input cannot be used: exit 2. For several problems raise a ManifestError."""

    exit = Exit.BROKEN


class MissingObject(CommandEnded):
    """There is nothing of a name: exit 1."""

    exit = Exit.REFUSED


class CommandFailed(CommandEnded):
    """The environment failed, or no decision was reached: exit 3."""


class Command(click.Command):
    """A click command that keeps the contract of exits. `empty` is its JSON answer when there is nothing to say, `examples` are for its help."""

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
        """Write what the command is for, and examples, which are never broken."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take files that stand by themselves, and folders to be built, for what `-f` would have named."""
        rest = super().parse_args(ctx, args)
        if ctx.params.get("namespace") and ctx.meta.get(_EVERYWHERE):
            raise click.UsageError("-n and -A contradict: leave one of them out", ctx)
        if "files" in ctx.params:
            from cli.outside import CHART, KUSTOMIZE

            built = [f"{KUSTOMIZE}{folder}" for folder in ctx.meta.get(_BUILT, ())]
            built += [f"{CHART}{folder}" for folder in ctx.meta.get(_CHARTS, ())]
            if ctx.meta.get(_VALUES) and not ctx.meta.get(_CHARTS):
                raise click.UsageError("--values is for a chart: add --chart DIR", ctx)
            ctx.params["files"] += (*ctx.meta.get(_BESIDE, ()), *built)
            missing = ctx.meta.get(_NEEDED) and not ctx.params["files"]
            if missing and not ctx.resilient_parsing:
                message = "Missing option '-f' / '--filename': name files, folders or - for standard input."
                raise click.UsageError(message, ctx)
        return rest

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and leave with the exit it returns."""
        json_wanted = ctx.params.get("output") == "json"
        try:
            code = super().invoke(ctx)
            if unread := _errors_of(ctx):
                code = Exit.BROKEN
                complain(
                    f"error: {count_of(len(unread), 'problem')} in the input, named above: this answer is not whole"
                )
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as failure:  # noqa: BLE001  the last line of defence: every failure has an exit and an answer
            every = _each(failure)
            if isinstance(every[0], BrokenPipeError):
                raise every[0] from None
            code, errors = Exit.FINE, []
            for error in every:  # each thing is said once
                exit_, said = _explain(error)
                code = max(code, exit_)
                errors += [one for one in said if one not in errors]
            _say(errors)
            with suppress(OSError):  # what kept the answer from being printed was told
                self._answer_errors(json_wanted, [*_errors_of(ctx), *errors], ctx.params)
        ctx.exit(Exit.FINE if code is None else code)

    def _answer_errors(
        self,
        json_wanted: bool,
        errors: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """Print the empty answer with the errors; what was asked for by name (`node`) keeps its name."""
        if not json_wanted:
            return
        named = given or {}
        answer = {key: (value == "" and named.get(key)) or value for key, value in self.empty.items()}
        if "error" in answer:
            messages = [str(problem["message"]) for problem in errors]
            answer["error"] = "; ".join(messages)
        answer["errors"] = errors
        write_json(answer)


def complain_of_usage(error: click.UsageError, of: str = "") -> dict[str, str]:
    """Say what is wrong with the words of a command, and which were meant; `of` is its name and a blank."""
    message = error.format_message()
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        meant = get_close_matches(
            message.partition(": ")[2].partition(" is not")[0].strip("'"), error.param.type.choices
        )
        message = message.rstrip(".") + (f": did you mean {meant[0]}?" if meant else "")
    message = message[:1].lower() + message[1:].rstrip(".").replace(". Did you mean", ": did you mean")
    problem = {"message": message, "remedy": f"see `drawbridge {of}--help`"}
    _say([problem])
    return problem


def command(
    name: str, *, empty: Mapping[str, Any] | None = None, examples: Sequence[str] = (), **settings: Any
) -> Callable[[_Body], Command]:
    """Declare a command, with the options that every command has; `empty` are the keys its JSON answer has even when the input is broken."""

    def declare(function: _Body) -> Command:
        hush = option("-q", "No warnings and no progress: the answer and errors alone.", called="--quiet", kept=QUIET)
        colour = click.option(
            "--color",
            type=click.Choice(("auto", "always", "never")),
            default="auto",
            expose_value=False,
            callback=keep(COLOUR),
            help="Colour: on a terminal by itself, unless NO_COLOR is set.",
        )
        made = click.command(name, cls=Command, **settings)(all_of((hush, colour))(function))
        made.empty = empty or {}
        made.examples = examples
        return made

    return declare


class Number(click.FloatRange):
    """A finite number, which Python's own reading of `nan` and `inf` does not promise."""

    def __init__(self, least: float | None, most: float | None = None) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def files(*, required: bool = True, beside: bool = True, help: str = "") -> Decorator:  # noqa: A002  click's own word
    """Give a command `-f`, `-k` and `--exclude`; and files that stand by themselves, unless other words do."""

    def note_need(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        ctx.meta[_NEEDED] = required
        return value

    alone = click.argument(
        "beside", nargs=-1, metavar="[FILE|DIR|URL|-]...", expose_value=False, callback=keep(_BESIDE)
    )
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            callback=note_need,
            metavar="FILE|DIR|URL|-",
            help=help or "A manifest, a directory of manifests, an address, or - for standard input. May be repeated.",
        ),
        *((alone,) if beside else ()),
        option(
            "-k",
            "A directory with a kustomization, built with kustomize or kubectl. May be repeated.",
            called="--kustomize",
            metavar="DIR",
            multiple=True,
            kept=_BUILT,
        ),
        option(
            "--chart",
            "A directory with a Helm chart, rendered with helm. May be repeated.",
            metavar="DIR",
            multiple=True,
            kept=_CHARTS,
        ),
        option(
            "--values",
            "Values for the chart, later ones over earlier ones. May be repeated.",
            metavar="FILE",
            multiple=True,
            kept=_VALUES,
        ),
        option(
            "--exclude",
            "Files below directories to pass by, as in .gitignore and .drawbridgeignore. May be repeated.",
            metavar="PATTERN",
            multiple=True,
            kept=_EXCLUDED,
        ),
    )
    return all_of(options)


def option(name: str, help: str, *, called: str = "", kept: str = "", **settings: Any) -> Decorator:  # noqa: A002  click's own word
    """Declare an option: with a `metavar` or a `type` it takes a value, else it is a flag; the help shows its default.

    `called` is its second name, `kept` where no command is told of it.
    """
    if not settings.keys() & {"metavar", "type"}:
        settings["is_flag"] = True
    elif "metavar" in settings and "multiple" not in settings:
        settings.setdefault("default", "")
    if settings.get("default"):
        settings["show_default"] = True
    if kept:
        settings |= {"expose_value": False, "callback": keep(kept)}
    return click.option(*filter(None, (name, called)), help=help, **settings)


def all_of(options: Sequence[Decorator]) -> Decorator:
    """Make one declaration of several, in the order in which the help lists them."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(options):
            function = one(function)
        return function

    return add


def keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Remember an option that no command is told of."""

    def note(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        ctx.meta[name] = value

    return note


def inventory() -> Decorator:
    """Give a command `--inventory`."""
    return option(
        "--inventory",
        "Classes, slices and nodes to decide by, such as a snapshot. May be repeated.",
        metavar="FILE|DIR",
        multiple=True,
    )


def server() -> Decorator:
    """Give a command the options that say for which Kubernetes it answers."""
    return all_of(
        (
            option(
                "--kubernetes",
                "The version to answer for, with the gates that are on in it by default: 1.34 to 1.37.",
                metavar="1.N",
            ),
            option(
                "--feature-gates",
                "Feature gates that differ from that version's defaults. AllAlpha and AllBeta stand for many.",
                metavar="GATE=BOOL,...",
            ),
        )
    )


def reached() -> Decorator:
    """Give a command the options that say which cluster, as kubectl calls them."""
    options = (
        option("--kubeconfig", "Default: the cluster we run in, else kubectl's.", metavar="FILE"),
        option("--context", "A context of the kubeconfig.", metavar="NAME"),
    )
    return all_of(options)


def log_level() -> Decorator:
    """Give a command the option that says how much it writes down while it runs."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    return option("--log-level", "The least severe lines to log.", type=levels, default="info")


def config(help: str = "A DrawbridgeConfiguration; without it, the defaults.") -> Decorator:  # noqa: A002  click's own word
    """Give a command `--config`."""
    return option("--config", help, metavar="FILE")


def config_among_files() -> Decorator:
    """Give a command `--config`, which may be among its files."""
    return config("A DrawbridgeConfiguration; without it, the one among the files, or the defaults.")


def listen(name: str, default: str | None, help: str) -> Decorator:  # noqa: A002  click's own word
    """Give a server an address to listen on."""
    return click.option(name, type=AddressType(), default=default, show_default=default is not None, help=help)


def metrics_listen(default: str | None) -> Decorator:
    """Give a server the address of its metrics."""
    where = "Where to show metrics." if default else "Where to show metrics and answer probes.  [default: nowhere]"
    return listen("--metrics-listen", default, where)


def callers(certified: str, with_token: str) -> Decorator:
    """Give a server the options that say which callers it answers: where it asks for a certificate, and where for a token."""
    options = (
        option(
            "--client-ca",
            f"Answer {certified} only to callers with a certificate of this authority; followed while it changes.",
            metavar="FILE",
        ),
        option(
            "--client-name",
            "With --client-ca: only callers with this common name. May be repeated.",
            metavar="NAME",
            multiple=True,
            called="client_names",
        ),
        option("--token-file", f"Answer {with_token} only to callers that show this bearer token.", metavar="FILE"),
    )
    return all_of(options)


def namespaced(help: str) -> Decorator:  # noqa: A002  click's own word
    """Give a command `-n`, and `-A` for what holds without it."""
    options = (
        click.option("-n", "--namespace", metavar="NAME", default="", help=help),
        option("-A", "All namespaces, which is the default.", called="--all-namespaces", kept=_EVERYWHERE),
    )
    return all_of(options)


def cluster() -> Decorator:
    """Give a command the options that say which cluster, and what of it."""
    options = (
        reached(),
        namespaced("Only this namespace."),
        click.option(
            "-l",
            "--selector",
            metavar="LABELS",
            default="",
            help="Only workloads with these labels, or whose pods have them.",
        ),
    )

    return all_of(options)


def output(*choices: str, default: str) -> Decorator:
    """Give a command `-o`."""
    return option("-o", "What to print.", type=click.Choice(choices), default=default, called="--output")


def read(paths: Sequence[str], *more: Sequence[str]) -> list[Document]:
    """Read what `-f` names; give further lists of paths only so that standard input is not asked for twice."""
    from cluster import manifests

    documents, problems_ = _read(paths, *more)
    if problems_:
        raise manifests.ManifestError(problems_)
    return documents


def read_what_can_be(paths: Sequence[str], *more: Sequence[str], keep: Keep | None = None) -> list[Document]:
    """Read likewise for a command that looks at each object by itself: what cannot be read does not stop the rest.

    It is named at once, stands in the JSON answer, and makes the exit 2 in the end. `keep` says what is kept of an object.
    """
    documents, problems_ = _read(paths, *more, keep=keep)
    note(problems_)
    if not documents and not problems_:
        warn("the input holds no objects")
    return documents


def read_tree(paths: Sequence[str], *more: Sequence[str]) -> tuple[list[Document], list[InputProblem]]:
    """Read likewise what may lie among other files, and give those apart that seem to be no manifests, each with the first reason."""
    documents, problems_ = _read(paths, *more)
    note(problem for problem in problems_ if not problem.instead)
    others: dict[str, InputProblem] = {}
    for problem in problems_:
        if problem.instead:
            others.setdefault(problem.file, problem)
    return documents, list(others.values())


def note(problems_: Iterable[InputProblem]) -> None:
    """Name what is broken and go on: it stands in the JSON answer, and makes the exit 2 in the end."""
    errors = [_as_dict(problem) for problem in problems_]
    _say(errors)
    _errors_of(click.get_current_context()).extend(errors)


def unread() -> list[dict[str, Any]]:
    """What the command that is running could not read, as `note` was told."""
    ctx = click.get_current_context(silent=True)
    return _errors_of(ctx) if ctx else []


def _errors_of(ctx: click.Context) -> list[dict[str, Any]]:
    """What the command that is running could not read."""
    unread: list[dict[str, Any]] = ctx.meta.setdefault(f"{__name__}.unread", [])
    return unread


def _say(errors: Iterable[Mapping[str, Any]]) -> None:
    from cluster.manifests import InputProblem

    for problem in errors:
        remedy = problem.get("remedy")
        told = f"{problem['message']} ({remedy})" if remedy else problem["message"]
        complain(f"error: {InputProblem(**problem) if 'file' in problem else told}")


def _read(
    paths: Sequence[str], *more: Sequence[str], keep: Keep | None = None
) -> tuple[list[Document], list[InputProblem]]:
    from cluster import manifests

    refuse_two_standard_inputs(paths, *more)
    exclude = click.get_current_context().meta.get(_EXCLUDED, ())
    with undisturbed():
        documents, problems_ = manifests.read_leniently(
            paths,
            exclude=exclude,
            outside=_from_outside,
            keep=keep,
            tell=warn,
        )
    for document in documents:
        if line := document.run_together:
            file = document.file
            warn(f"{file}:{line}: kind is given twice, and of two objects only one is read: is a line --- missing?")
    return documents, problems_


def _from_outside(name: str) -> tuple[bytes, str] | None:
    """The text of an address or a folder that is built, and the file that it was built from; None for a file."""
    from cli.outside import CHART, KUSTOMIZE, is_outside, text_of

    ctx = click.get_current_context()
    meta = ctx.meta
    for prefix, built in ((KUSTOMIZE, _BUILT), (CHART, _CHARTS)):
        if name.startswith(prefix) and name.removeprefix(prefix) not in meta.get(built, ()):
            return None  # a file that is called so: `-k` and `--chart` alone have folders built
    if not is_outside(name):
        return None
    return text_of(name, meta.get(_VALUES, ()), ctx.params.get("kubernetes", ""), ctx.params.get("namespace", ""))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Make what lives as long as the command: the cycle collector would walk trees of it all again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def refuse_two_standard_inputs(*groups: Sequence[str]) -> None:
    """Standard input can be read for one purpose only."""
    if sum(list(group).count("-") for group in groups) > 1:
        raise Broken("standard input (-) can be read only once", "give each further input as a file")


def refuse_files_and_cluster(files: Sequence[str], kubeconfig: str, context: str) -> None:
    """Files are read, or a live cluster."""
    if files and (kubeconfig or context):
        raise Broken("files are read, or a cluster", "leave -f out, or --kubeconfig and --context")


def write_json(value: Any) -> None:
    """Print the one JSON document of an answer."""
    import msgspec

    ctx = click.get_current_context(silent=True)
    if (
        ctx is not None
        and isinstance(value, dict)
        and ctx.params.get("output") == "json"
        and (errors := _errors_of(ctx))
    ):
        value = {**value, "errors": [*errors, *value.get("errors", ())]}
    # Quantities are the only values that msgspec does not know how to write.
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2))


def write_report(report: Report) -> None:
    """Print what was found as `-o html` or `-o markdown`; what could not be read stands at its end."""
    from msgspec.structs import replace

    from cli.report import Rows, as_html, as_markdown
    from webhook.names import VERSION

    ctx = click.get_current_context()
    places = [
        (":".join(str(one[key]) for key in ("file", "line", "column") if one.get(key)), one["message"])
        for one in unread()
    ]
    unreadable = Rows(("Where", "Problem"), places, "Cannot be read, so something may be missing")
    whole = replace(report, parts=(*report.parts, unreadable))
    if ctx.params["output"] == "html":
        text = as_html(whole, f"Written by drawbridge {ctx.info_name}, version {VERSION}.")
    else:
        text = as_markdown(whole)
    click.echo(text, nl=False)


def tell_hosts(text: str) -> None:
    """Print what a program reads; nothing at all where there is nothing to say."""
    if text:
        click.echo(text)


def wants_json(args: Sequence[str]) -> bool:
    """Say whether the arguments ask for JSON, before they are parsed."""
    joined = " ".join(args).replace("--output", "-o").replace("=", " ").replace("-o json", "-ojson")
    return "-ojson" in joined.split()


def _each(error: Exception) -> list[Exception]:
    """What failed, one by one where it is a group of tasks."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    found: list[Exception] = []
    for one in error.exceptions:
        found += _each(one)
    return found


def _explain(error: Exception) -> tuple[Exit, list[dict[str, Any]]]:
    """Find the exit for an exception, and put it into words."""
    from cluster.manifests import ManifestError

    if isinstance(error, ManifestError):
        return Exit.BROKEN, [_as_dict(problem) for problem in error.problems]
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
        "remedy": "report it with the lines above and the input",
    }
    return Exit.UNDECIDED, [bug]


def _as_dict(problem: InputProblem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "pointer": problem.pointer,
        "message": problem.message,
        "remedy": problem.remedy,
    }


def problems(documents: Iterable[tuple[Document, str, str]]) -> list[InputProblem]:
    """Make problems of (document, pointer, message): what a command finds broken about objects it must understand."""
    from cluster.manifests import InputProblem

    return [
        InputProblem(document.file, message, "", *document.position_of(pointer), pointer)
        for document, pointer, message in documents
    ]


def refuse(wrong: Sequence[tuple[Document, str, str]]) -> None:
    """Raise a ManifestError with what was found broken, if anything was."""
    from cluster.manifests import ManifestError

    if wrong:
        raise ManifestError(problems(wrong))


# What commands print with, taken over from cli.output.
__all__ = ["called", "colours", "complain", "count_of", "progress", "quiet", "tell", "tell_change", "warn", "width"]


class AddressType(click.ParamType["Address"]):
    """HOST:PORT, or :PORT for every address."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        from runtime.http import Address

        host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        host = host.strip("[]")
        if not host:
            host = "0.0.0.0"  # noqa: S104  an empty host means every address, as usual
        return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's alone. A name may stand for any."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
