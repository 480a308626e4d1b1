"""What stands on a webhook configuration for `certs.inject` to go by. Data only."""

# The rules of each webhook by its name, as JSON: they are put in their places together with the bundle.
RULES = "drawbridge.dev/rules"
# "other": another program keeps the bundle. cert-manager says so with an annotation of its own.
BUNDLE_KEEPER = "drawbridge.dev/ca-bundle"
CERT_MANAGER = "cert-manager.io/inject-ca-from"
OTHER_KEEPERS = (CERT_MANAGER, "cert-manager.io/inject-ca-from-secret")
