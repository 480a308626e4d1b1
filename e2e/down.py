"""`make cluster-down`: end the cluster of `make cluster`, and leftovers of killed runs."""

from e2e.ground import leftovers, run


def main() -> None:
    """End every detached run."""
    leftovers.sweep(run.folder())
    ended = run.detached()
    for root in ended:
        leftovers.end(root)
        print(f"ended {root.name}; its logs stay in {root / 'logs'}")
    if not ended:
        print("no cluster is running")


if __name__ == "__main__":
    main()
