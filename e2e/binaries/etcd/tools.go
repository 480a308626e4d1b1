//go:build tools

// Package binaries pins etcd, apart from Kubernetes: the two want different
// versions of the same modules.
package binaries

import _ "go.etcd.io/etcd/server/v3"
