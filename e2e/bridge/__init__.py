"""The bridge on a real control plane, and the observers beside it."""
