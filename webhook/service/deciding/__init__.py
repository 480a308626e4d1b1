"""Who decides a review: the loop under an alarm clock, a worker that can be killed."""
