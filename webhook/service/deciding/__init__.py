"""Where a review is decided: on the loop within a budget, or in a worker that can be killed."""
