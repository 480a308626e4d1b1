"""Commands about the command line itself: completion for shells, and the manual page."""
