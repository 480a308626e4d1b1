"""The audit agent of one node: compares all sources about its devices, reports what does not fit, marks what device plugins hold."""
