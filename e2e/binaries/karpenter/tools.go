//go:build tools

// Package binaries pins Karpenter with its provider of made-up nodes: an autoscaler that meets pods with claims.
package binaries

import _ "sigs.k8s.io/karpenter/kwok"
