//go:build tools

// Package oracle pins what the referees are built from.
package oracle

import _ "k8s.io/kubernetes/pkg/apis/resource/validation"
