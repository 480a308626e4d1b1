//go:build !minor38

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
)

func converted(slices []*resourceapi.ResourceSlice) ([]*resourceapi.ResourceSlice, error) {
	return slices, nil
}

func emptyState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

func addShare(state *structured.AllocatedState, id structured.DeviceID, share *types.UID) {
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, share))
}

func checkConsumed(map[resourceapi.QualifiedName]resource.Quantity) error { return nil }
