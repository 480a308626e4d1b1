"""Tests of the real cluster itself, and of what drawbridge predicts about Kubernetes."""
