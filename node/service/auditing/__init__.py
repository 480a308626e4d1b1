"""The audit agent of a node: compares all sources about the node's devices, reports contradictions, and marks devices that plugins hold."""
