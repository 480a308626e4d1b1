"""Where a review is decided: on the loop under a CPU timer, or in a worker that can be killed."""
