"""Objects against each other, and against what drivers publish."""
