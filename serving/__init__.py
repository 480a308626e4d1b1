"""What all processes that serve share: the HTTP listener, authentication, metrics, logs and signals."""
