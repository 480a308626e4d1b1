"""The first event in in-tree order, without the dead ends, within a budget."""
