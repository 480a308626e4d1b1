"""The functions that selectors may call, as Kubernetes declares them."""
