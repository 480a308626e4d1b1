"""What is kept: objects with versions and a window of history, writes that are whole or not at all, and the file behind them."""
