"""The one port to the outside: a Cluster, real or embedded, and the manifests on disk."""
