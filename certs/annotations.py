"""The annotations of webhook configurations that `certs.inject` reads."""

# The rules of each webhook by its name, as JSON, which are written into the webhooks together with the CA bundle.
RULES = "drawbridge.dev/rules"
# "other": another program maintains the CA bundle. cert-manager's own annotations mean the same.
BUNDLE_KEEPER = "drawbridge.dev/ca-bundle"
CERT_MANAGER = "cert-manager.io/inject-ca-from"
OTHER_KEEPERS = (CERT_MANAGER, "cert-manager.io/inject-ca-from-secret")
