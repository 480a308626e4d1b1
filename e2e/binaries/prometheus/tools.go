//go:build tools

// Package binaries pins Prometheus, which reads our metrics, rules and panels.
package binaries

import _ "github.com/prometheus/prometheus/cmd/prometheus"
