// Package iptables has the names that the kubelet uses of sigs.k8s.io/iptables-wrappers, and finds no iptables on the node.
package iptables

import (
	"context"
	"time"
)

type (
	Chain        string
	Mode         string
	Protocol     string
	RulePosition string
	Table        string
)

const (
	Append           RulePosition = "-A"
	Prepend          RulePosition = "-I"
	ChainInput       Chain        = "INPUT"
	ChainOutput      Chain        = "OUTPUT"
	TableFilter      Table        = "filter"
	TableMangle      Table        = "mangle"
	TableNAT         Table        = "nat"
	UseInstalledMode Mode         = ""
)

type Interface interface {
	EnsureChain(ctx context.Context, table Table, chain Chain) (bool, error)
	EnsureRule(ctx context.Context, position RulePosition, table Table, chain Chain, args ...string) (bool, error)
	IsIPv6() bool
	Monitor(ctx context.Context, canary Chain, tables []Table, reload func(), interval time.Duration)
	Protocol() Protocol
}

// NewBestEffort finds no iptables, as on a node that has only nftables. Without iptables, the kubelet writes no rules.
func NewBestEffort(context.Context, Mode) map[Protocol]Interface { return nil }
