//go:build tools

// Package binaries pins kube-state-metrics, whose metrics of pods know nothing of claims.
package binaries

import _ "k8s.io/kube-state-metrics/v2"
