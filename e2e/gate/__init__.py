"""The gate on a real control plane."""
