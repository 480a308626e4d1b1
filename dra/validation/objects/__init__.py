"""One object, as the API server judges it."""
