"""Where the `drawbridge` command begins: a table of commands, each imported only when it is called.

`--help` must answer in a blink and `translate` must never pay for a web server, so a command is named here by the
module that holds it, and its one-line help stands here too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from cli.output import CommandContext
from webhook.names import VERSION

if TYPE_CHECKING:
    from cli.contract import Command

# Name: one line of help. The module of that name in `cli.commands` has the click command as `command`.
COMMANDS = {
    "survey": "Say who asks for devices in a cluster or a dump, and what becomes of each.",
    "observed": "Say what the webhook decided in each namespace, from its logs, and why.",
    "snapshot": "Write what a cluster has that decides about devices into one file.",
    "translate": "Rewrite pods that ask the old way into pods with ResourceClaims.",
    "check": "Find what the API server, the fleet or a driver would refuse.",
    "test": "Run cases for rules and policies: a pod, an inventory, what is expected.",
    "allocate": "Say which devices claims get on a node, or why not.",
    "simulate": "Schedule the pending pods of a snapshot, or replay a workload.",
    "resize": "Say whether a workload would fit with other amounts, and what to write.",
    "matrix": "Say which devices of a pool can be in use together.",
    "quota": "Say what quotas leave, who has what of them, and which keys limit nothing.",
    "nodes": "List the devices of nodes, who holds each, and since when.",
    "dashboard": "Show the fleet, its holders, the pods that wait and why, in a browser.",
    "explain": "Say why a pod, a workload or a device is as it is, or what a code means.",
    "demo": "Push real-world legacy pods through the webhook, on the embedded store.",
    "standalone": "Run webhook, controllers and allocator on loopback, without a cluster.",
    "webhook": "Run the admission webhook and its templates controller (in a cluster).",
    "allocator": "Decide for schedulers which devices pods get, and write it (in a cluster).",
    "driver": "Publish and prepare the devices of a node, as its DRA driver (on a node).",
    "node-agent": "Find what does not fit on a node, and mark what device plugins hold (on a node).",
    "doctor": "Find what is not as it should be in a cluster, and put it right if you say so.",
    "dialects": "List every legacy key that is understood, and what becomes of it.",
    "schema": "Print the JSON schema of the configuration, or of what a command answers.",
    "completion": "Print a script that completes drawbridge in bash, zsh or fish.",
    "man": "Print the manual page, made of these helps.",
    "help": "Print the help of a command or a topic.",
    "version": "Print the version, and which Kubernetes it knows.",
    "manifests": "Print what `kubectl apply` needs to install drawbridge.",
    "uninstall": "Take away what is drawbridge's in a cluster, and say what stays.",
}


def command_of(name: str) -> Command:
    """Import a command."""
    command: Command = import_module(f"cli.commands.{name.replace('-', '_')}").command
    return command


class Lazy(click.Group):
    """A group whose commands are imported on first use."""

    context_class = CommandContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return command_of(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; of a misspelt one say which was meant."""
        name = args[0]
        if name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            ctx.fail(f"no such command {name!r}{meant}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options before a command; a wrong one ends like a wrong one of a command."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _refused(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _refused(error) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command from the table, without loading twelve modules."""
        named = [(name, line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=line) for name, line in named]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _refused(error: click.UsageError) -> click.exceptions.Exit:
    from cli.contract import Exit, complain_of_usage

    complain_of_usage(error)
    return click.exceptions.Exit(Exit.BROKEN)


@click.group(cls=Lazy, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="drawbridge")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Take pods written for device plugins across to Dynamic Resource Allocation.

    Start with `drawbridge translate -f pod.yaml` and `drawbridge check -f manifests/`: neither needs a cluster.
    `drawbridge demo` shows the whole way in a few seconds.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if (
    __name__ == "__main__"
):  # `python -I -m cli.main`, where nothing may be imported from the folder that we are in, or from PYTHONPATH
    from cli import begin

    begin("drawbridge")
