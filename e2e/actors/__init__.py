"""What takes part: the webhook, the bridge, fleets and workloads, and the ways on which they reach the API server."""
