//go:build tools

// Package binaries pins NVIDIA's device plugin, which e2e/vendors runs on an NVML without GPUs.
package binaries

import _ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
