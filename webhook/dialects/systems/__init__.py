"""Dialects of systems with their own scheduler or webhook, in which several keys of a pod form one request."""
