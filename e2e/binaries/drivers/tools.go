//go:build tools

// Package binaries pins vendors' own drivers, which e2e/vendors runs with pods of ours.
package binaries

import (
	_ "github.com/kubernetes-sigs/dra-driver-cpu/cmd/dracpu"
	_ "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"
	_ "sigs.k8s.io/dranet/cmd/dranet"
)
