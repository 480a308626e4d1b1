"""What `drawbridge check` says, and how deep it looks."""
