"""Koordinator's dialect: `table` has its keys, `pod_request` sums up and parses them, `reader` returns the demands."""
