//go:build tools

// Package binaries pins NVIDIA's driver and the hook of its container toolkit, which e2e/vendors runs on an NVML without GPUs.
package binaries

import (
	_ "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"
	_ "sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin"
)
