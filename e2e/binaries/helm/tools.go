//go:build tools

// Package binaries pins helm, which tests the chart.
package binaries

import _ "helm.sh/helm/v3/cmd/helm"
