"""The audit agent of one node: reads what everybody says of its devices, tells what does not fit, marks what device plugins hold."""
