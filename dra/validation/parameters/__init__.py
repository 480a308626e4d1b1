"""Rules about `opaque.parameters` of known drivers: their schemas, and the requests to which an entry of `config` applies."""
