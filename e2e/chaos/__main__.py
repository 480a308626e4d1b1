"""`make chaos`: minutes of churn while every process is killed in turn; exits with 1 if the judge finds a fault. Prints its seed."""

import argparse
import os
import random
import sys

from e2e.build import program
from e2e.chaos.run import run, stage, table
from e2e.chaos.troubles import rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=100, help="fake nodes, with five devices each")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--only", default="", metavar="WORD", help="only troubles whose name contains this")
    parser.add_argument("--no-node", dest="node", action="store_false", help="without the real node, which needs root")
    options = parser.parse_args()
    program("drawbridge-scheduler")  # the control plane builds its own programs
    print(
        f"seed {options.seed}: repeat with --seed {options.seed} --nodes {options.nodes} --only={options.only!r}{'' if options.node else ' --no-node'}",
        flush=True,
    )
    with stage(options.nodes, node=options.node) as stage_:
        troubles = rounds(random.Random(options.seed), options.only, node=options.node)
        report = run(stage_, troubles, namespace="chaos", seed=options.seed, seconds=options.minutes * 60)
    counts = ", ".join(f"{number} {what}" for what, number in report.verdict.counts.items())
    print(*table(report), sep="\n")
    print(f"{report.seconds:.0f} s in all, load {os.getloadavg()[1]:.1f}: {counts}, {len(report.faults)} faults")
    for fault in report.faults:
        print(f"FAULT: {fault.kind} (revision {fault.revision}): {fault.details}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
