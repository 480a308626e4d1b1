"""What is declared and known, as one value: the configuration, the fleet, the modes, the server's features."""
