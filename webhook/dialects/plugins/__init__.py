"""Device plugins: names that the kubelet counts, read for what they ask of a driver."""
