"""A server's options are derived from the fields of its settings. The parsed values are stored in these fields."""

from pathlib import Path
from typing import Annotated, Literal

import click
import msgspec
import pytest
from click.testing import CliRunner

from allocator.service import AllocatorSettings
from cli.server_options import options_of
from node.service import AgentSettings, NodePaths
from serving.flag import OPTIONS, Flag
from serving.http import Address
from webhook.service import WebhookSettings


class Inner(msgspec.Struct, frozen=True):
    where: Annotated[Address | Path | None, Flag("Where.")] = None
    unflagged: int = 5


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    on: Annotated[bool, Flag("On.")] = True
    off: Annotated[bool, Flag("Off.")] = False
    maybe: Annotated[bool | None, Flag("Maybe.")] = None
    inner: Annotated[Inner, OPTIONS] = Inner()
    names: Annotated[tuple[str, ...], Flag("Names.", "NAME", name="name")] = ("a", "b")
    kind: Annotated[Literal["x", "y"], Flag("Kind.")] = "x"
    seconds: Annotated[float, Flag("Seconds.", least=1, most=10)] = 2.0
    listen: Annotated[Address, Flag("Listen.")] = Address("127.0.0.1", 80)
    backwards: Annotated[str, Flag("Backwards.", "TEXT", read=lambda text: text[::-1])] = ""
    place: Annotated[str, Flag("Place.", "TEXT", absent=lambda: "found")] = "default"


def parse_settings(settings_type, *arguments):
    """Return the settings that the command receives, or its output if it fails."""
    received = []

    @click.command()
    @options_of(settings_type)
    def command(settings):
        received.append(settings)

    result = CliRunner().invoke(command, arguments)
    return received[0] if received else result.output


def test_a_missing_option_has_the_default_of_its_field():
    assert parse_settings(Outer) == Outer(place="found")


class WithMode(msgspec.Struct, frozen=True):
    mode: Annotated[int, Flag("Mode.", "MODE", read=lambda text: int(text, 8), show="0{:o}".format)] = 0o710


def test_a_default_is_shown_as_the_option_reads_it():
    assert "[default: 0710]" in parse_settings(WithMode, "--help")
    assert parse_settings(WithMode).mode == parse_settings(WithMode, "--mode=0710").mode == 0o710


def test_an_option_is_parsed_by_its_fields_type():
    arguments = ["--no-on", "--off", "--no-maybe", "--where=unix:/s", "--name=c", "--kind=y"]
    more_arguments = ["--seconds=3", "--listen=:9", "--backwards=abc", "--place=given"]
    assert parse_settings(Outer, *arguments, *more_arguments) == Outer(
        on=False,
        off=True,
        maybe=False,
        inner=Inner(Path("/s")),
        names=("c",),
        kind="y",
        seconds=3.0,
        listen=Address("0.0.0.0", 9),
        backwards="cba",
        place="given",
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--seconds=nan", "not a finite number"),
        ("--seconds=11", "not in the range 1<=x<=10"),
        ("--kind=z", "is not one of 'x', 'y'"),
        ("--where=unix:", "names no socket"),
        ("--listen=x", "is not HOST:PORT"),
        ("--listen=:²", "is not HOST:PORT"),
        ("--unflagged=1", "No such option"),
    ],
)
def test_an_unknown_option_or_an_invalid_value_is_refused(option, message):
    assert message in parse_settings(Outer, option)


@pytest.mark.parametrize(
    ("settings_type", "fields"),
    [
        (WebhookSettings, {"namespace": "ours"}),
        (AllocatorSettings, {"namespace": "ours", "identity": "pod"}),
        (AgentSettings, {"paths": NodePaths("node")}),
    ],
)
def test_settings_have_defaults_from_the_pods_environment(settings_type, fields, monkeypatch):
    for name, value in {"POD_NAMESPACE": "ours", "POD_NAME": "pod", "NODE_NAME": "node"}.items():
        monkeypatch.setenv(name, value)
    assert parse_settings(settings_type) == settings_type(**fields)
