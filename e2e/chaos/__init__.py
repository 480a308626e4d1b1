"""Churn on a real control plane whose processes, like ours, are killed, stopped and disconnected; a judge reads etcd's history."""
