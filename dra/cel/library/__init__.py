"""The functions that selectors may call, as Kubernetes 1.37 declares and prices them."""
