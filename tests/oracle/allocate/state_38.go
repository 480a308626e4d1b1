//go:build minor38

package main

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured"
)

func converted(slices []*resourceapi.ResourceSlice) ([]*draapi.ResourceSlice, error) {
	result := make([]*draapi.ResourceSlice, len(slices))
	for i, slice := range slices {
		result[i] = new(draapi.ResourceSlice)
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, result[i], nil); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func emptyState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.DeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

func addShare(state *structured.AllocatedState, id structured.DeviceID, _ *types.UID) {
	state.AllocatedSharedDeviceIDs.Insert(id)
}

// checkConsumed fails as the scheduler does before it allocates for any pod.
func checkConsumed(amounts map[resourceapi.QualifiedName]resource.Quantity) error {
	for name, amount := range amounts {
		if amount.Sign() < 0 {
			return fmt.Errorf("consumed capacity %q must not be negative, got %s", name, amount.String())
		}
	}
	return nil
}
