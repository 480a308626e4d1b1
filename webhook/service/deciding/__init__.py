"""The decision about a review, with its budget and limits. The event loop and the workers use the same code."""
