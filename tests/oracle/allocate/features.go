//go:build !older

package main

import (
	"errors"

	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func switchesOf(f *structured.Features) map[string]*bool {
	return map[string]*bool{
		"AdminAccess": &f.AdminAccess, "CompatibilityGroups": &f.CompatibilityGroups, "ConsumableCapacity": &f.ConsumableCapacity,
		"DerivedAttributes": &f.DerivedAttributes, "DeviceBindingAndStatus": &f.DeviceBindingAndStatus, "DeviceTaints": &f.DeviceTaints,
		"FractionalCapacityRange": &f.FractionalCapacityRange, "ListTypeAttributes": &f.ListTypeAttributes,
		"OptionalNodeOperations": &f.OptionalNodeOperations, "PartitionableDevices": &f.PartitionableDevices, "PrioritizedList": &f.PrioritizedList,
	}
}

func celFeatures(f structured.Features) dracel.Features {
	return dracel.Features{EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: f.ListTypeAttributes}
}

func onlyThisNode(err error) bool { return errors.Is(err, structured.ErrFailedAllocationOnNode) }
