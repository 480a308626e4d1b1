"""Looking on beside somebody else's scheduler: what pods are told, what should not be, and who has what. Only events are written."""
