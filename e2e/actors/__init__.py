"""The participants: webhook, bridge, fleets and workloads, and their connections to the API server."""
