"""What schedulers ask: ours by the plugin's protocol, stock ones as an extender."""
