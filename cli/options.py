"""The options that several commands take, and the types of their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cli.files import InputFiles
    from serving.http import Address

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# A key of `click.Context.meta` under which `remember` stores the value of an option that is no parameter of commands.
ALL_NAMESPACES = f"{__name__}.all-namespaces"

INSTEAD_OF_CLUSTER = "A dump of a cluster, or manifests, instead of a live cluster. May be repeated."


class FiniteNumber(click.FloatRange):
    """A finite number: click's own type accepts `nan` and `inf`."""

    def __init__(self, least: float | None, most: float | None = None) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class AddressType(click.ParamType["Address"]):
    """HOST:PORT, or :PORT for all IPv4 addresses."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        from serving.http import Address

        host, colon, port = value.rpartition(":")
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        host = host.strip("[]")
        if not host:
            host = "0.0.0.0"  # noqa: S104  an empty host means all IPv4 addresses
        return Address(host, int(port))


def option(name: str, help: str, *, called: str = "", remembered_as: str = "", **settings: Any) -> Decorator:  # noqa: A002  click's own word
    """Declare an option: with a `metavar` or a `type` it takes a value, else it is a flag; help shows its default.

    `called` is a second name of the option (`--quiet`), or the name of its parameter (`open_browser`). With `remembered_as`, the value is
    stored in `ctx.meta[remembered_as]`, and the command does not get it.
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


def files(*, positional: bool = True, help: str = "") -> Decorator:  # noqa: A002  click's own word
    """Add `-f`, `-k`, `--chart`, `--values` and `--exclude`; with `positional` also files as arguments. A command gets all as `files`."""
    argument = click.argument("positional", nargs=-1, metavar="[FILE|DIR|URL|-]...")
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            metavar="FILE|DIR|URL|-",
            help=help or "A manifest, a directory of manifests, a URL, or - for standard input. May be repeated.",
        ),
        *((argument,) if positional else ()),
        click.option(
            "-k",
            "--kustomize",
            "kustomizations",
            multiple=True,
            metavar="DIR",
            help="A directory with a kustomization, to build with kustomize or kubectl. May be repeated.",
        ),
        option(
            "--chart",
            "A directory with a Helm chart, to render with helm. May be repeated.",
            metavar="DIR",
            multiple=True,
            called="charts",
        ),
        option(
            "--values",
            "Values for the chart; later files take precedence. May be repeated.",
            metavar="FILE",
            multiple=True,
        ),
        option(
            "--exclude",
            "Files to skip in directories, as a pattern of .gitignore. May be repeated.",
            metavar="PATTERN",
            multiple=True,
            called="excluded",
        ),
    )
    return all_of(options)


def gather_files(parameters: dict[str, Any]) -> InputFiles:
    """Take the values of these options out of a command's parameters."""
    from cli.files import InputFiles

    return InputFiles(
        paths=(*parameters.pop("files"), *parameters.pop("positional", ())),
        **{name: parameters.pop(name) for name in ("kustomizations", "charts", "values", "excluded")},
        inventory=parameters.pop("inventory", ()),
        kubernetes=parameters.get("kubernetes", ""),
        namespace=parameters.get("namespace", ""),
    )


def inventory(default: str = "") -> Decorator:
    """Add `--inventory`, which a command gets as a part of `files`."""
    return option(
        "--inventory",
        f"The fleet: classes, slices and nodes, for example a snapshot. {default}May be repeated.",
        metavar="FILE|DIR",
        multiple=True,
    )


def server() -> Decorator:
    """Add `--kubernetes` and `--feature-gates`."""
    from dra.server import SUPPORTED

    return all_of(
        (
            option(
                "--kubernetes",
                f"Answer for this Kubernetes version ({SUPPORTED}), with its default feature gates.",
                metavar="1.N",
            ),
            option(
                "--feature-gates",
                "Feature gates that differ from that version's defaults, as the API server takes them.",
                metavar="GATE=BOOL,...",
            ),
        )
    )


def cluster_access() -> Decorator:
    """Add `--kubeconfig` and `--context`."""
    return all_of(
        (
            option(
                "--kubeconfig", "Default: the cluster that drawbridge runs in, else kubectl's file.", metavar="FILE"
            ),
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
        "Decide in this mode, instead of the modes of namespaces and configuration.",
        type=click.Choice(("enforce", "warn", "observe", "off")),
    )


def verbose() -> Decorator:
    """Add `-v`."""
    return option("-v", "Also list the input that was ignored, and the checks without input.", called="--verbose")


def listen(name: str, default: str | None, help: str) -> Decorator:  # noqa: A002  click's own word
    """Add an option for an address to listen on."""
    return click.option(name, type=AddressType(), default=default, show_default=default is not None, help=help)


def metrics_listen(default: str | None) -> Decorator:
    """Add `--metrics-listen`."""
    text = "Where to serve metrics." if default else "Where to serve metrics and answer probes.  [default: nowhere]"
    return listen("--metrics-listen", default, text)


def namespaced(help: str) -> Decorator:  # noqa: A002  click's own word
    """Add `-n`, and `-A`, which means all namespaces and is the default."""
    return all_of(
        (
            click.option("-n", "--namespace", metavar="NAME", default="", help=help),
            option("-A", "All namespaces (the default).", called="--all-namespaces", remembered_as=ALL_NAMESPACES),
        )
    )


def output(*choices: str, default: str | None) -> Decorator:
    """Add `-o`."""
    return option("-o", "The output format.", type=click.Choice(choices), default=default, called="--output")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address; a name may resolve to any address."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
