"""Churn on a real control plane while its processes and ours are killed, stopped and disconnected, and a judge that reads etcd's history."""
