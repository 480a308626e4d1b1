//go:build !minor34 && !minor35

package main

import (
	"errors"

	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func celFeatures(f structured.Features) dracel.Features {
	return dracel.Features{EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: f.ListTypeAttributes}
}

func onlyThisNode(err error) bool { return errors.Is(err, structured.ErrFailedAllocationOnNode) }
