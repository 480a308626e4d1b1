"""The decision about a review, its budget and its limits; the loop and the workers use the same."""
