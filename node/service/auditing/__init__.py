"""The audit agent of a node: compares all sources about its devices, reports contradictions, and marks devices held by plugins."""
