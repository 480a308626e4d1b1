"""From a checked tree to an answer: closures where nothing can grow, counting where something can."""
