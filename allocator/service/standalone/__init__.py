"""Where there is no scheduler at all: a small one, for the embedded store."""
