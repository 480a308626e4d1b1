"""Which devices each claim gets, or why not."""
