"""The annotations of webhook configurations that `certs.inject` reads."""

# The rules of each webhook by name, as JSON. `certs.inject` writes these rules into the webhooks together with the CA bundle.
RULES = "drawbridge.dev/rules"
# With the value "other", another program maintains the CA bundle. cert-manager's own annotations mean the same.
BUNDLE_KEEPER = "drawbridge.dev/ca-bundle"
CERT_MANAGER = "cert-manager.io/inject-ca-from"
OTHER_KEEPERS = (CERT_MANAGER, "cert-manager.io/inject-ca-from-secret")
