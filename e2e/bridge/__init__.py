"""The bridge on a real control plane, and what looks on beside it."""
