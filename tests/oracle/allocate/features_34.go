//go:build minor34

package main

import (
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func celFeatures(f structured.Features) dracel.Features {
	return dracel.Features{EnableConsumableCapacity: f.ConsumableCapacity}
}

// onlyThisNode: every error ends the scheduling attempt.
func onlyThisNode(error) bool { return false }
