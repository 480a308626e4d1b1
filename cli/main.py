"""The `drawbridge` command: a table of commands, each imported only when it is called.

The table has the one-line help of each command, so that `--help` imports no command, and `translate` imports no web server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from cli.output import CommandContext
from webhook.names import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cli.command import Command

# By group and name of a command, one line of help. The module with the command's name in `cli.commands` defines `command`.
GROUPS = {
    "Look": {
        "survey": "List workloads that request devices, and the outcome for each.",
        "free": "List the devices of nodes, and the pods that hold them.",
        "quota": "Show the use of DeviceQuotas, and the keys that limit nothing.",
        "doctor": "Find what is wrong in a cluster, and repair it on request.",
        "dashboard": "Show devices, their holders and waiting pods in a browser.",
        "snapshot": "Save what these commands read of a cluster, without Secrets.",
    },
    "Change": {
        "migrate": "Move a Git tree from device plugins to DRA drivers.",
        "translate": "Rewrite pods for device plugins into pods with ResourceClaims.",
        "check": "Find what the API server, the fleet or a driver would refuse.",
        "test": "Run test cases for rules and policies.",
        "dialects": "List the known legacy keys, and how they are translated.",
    },
    "Ask about a pod": {
        "explain": "Explain the state of a pod, claim or device; explain a code.",
        "simulate": "Show where pending pods would go, or which devices claims get.",
        "resize": "Show whether a workload would fit with other amounts.",
        "demo": "Send example pods through the webhook, without a cluster.",
    },
    "Install": {
        "manifests": "Print the manifests of drawbridge, or write a Helm chart.",
        "uninstall": "Remove drawbridge from a cluster, and list what stays.",
        "schema": "Print the JSON schema of the configuration or of an output.",
        "completion": "Print a script that completes drawbridge in bash, zsh or fish.",
        "version": "Print the version, and the versions of Kubernetes it knows.",
    },
    "Servers": {
        "standalone": "Run webhook and allocator on loopback, without a cluster.",
        "webhook": "Run the admission webhook (in a cluster).",
        "allocator": "Allocate devices for schedulers (in a cluster).",
        "driver": "Run a DRA driver: publish and prepare devices (on a node).",
        "node-agent": "Audit a node, and mark devices of device plugins (on a node).",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}


def command_of(name: str) -> Command:
    """Import and return a command."""
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
        """Resolve the command, and suggest one if it is misspelt."""
        name = args[0]
        if name not in COMMANDS:
            from difflib import get_close_matches

            similar = get_close_matches(name, COMMANDS, n=1)
            meant = f": did you mean {similar[0]}?" if similar else ""
            ctx.fail(f"no such command {name!r}{meant}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the options before the command; report usage errors as commands do."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _refused(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _refused(error) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table, without importing the commands."""
        from click.shell_completion import CompletionItem

        named = [(name, line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=line) for name, line in named]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])


def _refused(error: click.UsageError) -> click.exceptions.Exit:
    from cli.command import complain_of_usage
    from cli.exits import Exit

    complain_of_usage(error)
    return click.exceptions.Exit(Exit.BROKEN)


@click.group(cls=Lazy, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="drawbridge")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Move pods written for device plugins to Dynamic Resource Allocation.

    Start with `drawbridge translate -f pod.yaml` and `drawbridge check -f manifests/`: neither needs a cluster.
    `drawbridge demo` shows every step in a few seconds.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if __name__ == "__main__":  # `python -I -m cli.main` imports nothing from the working directory or PYTHONPATH
    from cli import begin

    begin("drawbridge")
