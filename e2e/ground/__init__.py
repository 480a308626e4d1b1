"""The ground: starts, supervises and ends Kubernetes' own processes on this machine."""
