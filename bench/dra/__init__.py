"""The field itself: selectors, decoding, the stock."""
