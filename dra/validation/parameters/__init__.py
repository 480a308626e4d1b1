"""Rules about `opaque.parameters` of known drivers: the schemas, and the requests that the entries apply to."""
