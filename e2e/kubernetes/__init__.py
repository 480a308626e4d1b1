"""Tests of the harness, and of our predictions about Kubernetes."""
