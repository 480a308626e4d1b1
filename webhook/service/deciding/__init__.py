"""Who decides a review: the memory of like ones, the loop under an alarm clock, a worker that can be killed."""
