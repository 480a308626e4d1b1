"""Tests of the ground itself, and of what we say beside what Kubernetes does."""
