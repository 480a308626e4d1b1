"""Room for important pods: evictions, nominated nodes, and requeueing pods of stock schedulers."""
