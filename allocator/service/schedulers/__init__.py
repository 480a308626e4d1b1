"""The HTTP calls of schedulers: the protocol of our plugin, and the extender protocol of stock schedulers."""
