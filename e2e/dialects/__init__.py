"""The manifests of manifests/examples, dialect by dialect, on the real cluster."""
