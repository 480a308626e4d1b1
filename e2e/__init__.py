"""The real cluster: real Kubernetes processes on this machine, and the tests that need them. README.md says how to use it."""
