"""`make cluster`: start a control plane and one real node, print how to use them, and leave them running."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.build import CLUSTER, HOME, NODE, BuildError, folder, missing, program
from e2e.ground import foreign, product, run
from e2e.ground.cache import locked, say
from e2e.ground.controlplane import ALPHA_GATES, ControlPlane
from e2e.ground.node import TEST_DRIVER, Node
from e2e.ground.process import ProcessError


def main() -> None:
    """Start the cluster. An error ends the program with one message instead of a traceback."""
    options = read_options()
    try:
        with locked("cluster"):
            for root in run.detached():
                sys.exit(
                    f"a cluster runs already: export KUBECONFIG={kubeconfig(root)}, or end it with `make cluster-down`"
                )
            start(options)
    except (BuildError, ProcessError, foreign.ForeignError) as error:
        sys.exit(f"make cluster: {error}")


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.up", description=__doc__)
    parser.add_argument("--no-node", action="store_true", help="only the control plane, which needs no root")
    parser.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="nodes that are API objects only")
    parser.add_argument("--gates", default="", metavar="A=true,B=false", help="feature gates on top of the alpha ones")
    return parser.parse_args(arguments)


def start(options: argparse.Namespace) -> None:
    if not options.no_node:
        foreign.refuse()
        if os.geteuid() != 0:
            sys.exit("a real node needs root; `python -m e2e.up --no-node` starts the control plane alone")
    if names := missing(CLUSTER if options.no_node else (*CLUSTER, *NODE)):
        say(f"building {', '.join(names)} first; this takes minutes if Go's cache has none of their packages")
    overrides = dict(pair.split("=") for pair in options.gates.split(",") if pair)
    gates = ALPHA_GATES | {gate: on == "true" for gate, on in overrides.items()}
    with ControlPlane(name="cluster", feature_gates=gates, audit=True, network=not options.no_node) as cluster:
        say(f"control plane ready after {cluster.ready_seconds:.1f} s")
        if not options.no_node:
            node = Node(cluster).start()
            node.driver(TEST_DRIVER, devices=4)
            say(f"node {node.name} ready after {node.ready_seconds:.1f} s more, with the DRA driver {TEST_DRIVER}")
            node.import_images(product.archive(cluster.run.data))
        cluster.add_fake_nodes(options.fake_nodes)
        print(cluster.kubectl("get", "nodes").stdout)
        if cluster.network:
            print(f"images:    {product.NAME}, {product.SCHEDULER}")
            print(f"network:   pods reach this machine as {cluster.network.outside}")
        print(f"logs:      {cluster.run.logs}")
        print(
            f"export PATH={':'.join(map(str, tools()))}:$PATH    # drawbridge, kubectl; helm after `python -m e2e.build helm`"
        )
        print(f"export KUBECONFIG={kubeconfig(cluster.run.root)}")
        cluster.detach()


def tools() -> list[Path]:
    """Name the folders of the programs that docs/install.md uses. The cluster does not need helm, so helm may not be built yet."""
    return [Path(sys.executable).parent, program("kubectl").parent, folder(HOME["helm"])]


def kubeconfig(root: os.PathLike[str]) -> str:
    return f"{os.fspath(root)}/data/admin.kubeconfig"


if __name__ == "__main__":
    main()
