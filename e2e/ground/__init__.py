"""The ground: Kubernetes' own processes on this machine, started, watched over and ended."""
