"""Preemption: choosing and evicting victims, nominated nodes, and requeueing the pods of stock schedulers."""
