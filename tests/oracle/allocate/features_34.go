//go:build minor34

package main

import (
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func switchesOf(f *structured.Features) map[string]*bool {
	return map[string]*bool{
		"AdminAccess": &f.AdminAccess, "ConsumableCapacity": &f.ConsumableCapacity, "DeviceBinding": &f.DeviceBinding,
		"DeviceStatus": &f.DeviceStatus, "DeviceTaints": &f.DeviceTaints, "PartitionableDevices": &f.PartitionableDevices,
		"PrioritizedList": &f.PrioritizedList,
	}
}

func celFeatures(f structured.Features) dracel.Features {
	return dracel.Features{EnableConsumableCapacity: f.ConsumableCapacity}
}

// onlyThisNode: every error ends the scheduling attempt.
func onlyThisNode(error) bool { return false }
