//go:build minor38

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

func converted(d device) (dracel.Device, error) {
	published := resourceapi.Device{AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity}
	slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: d.Driver, Devices: []resourceapi.Device{published}}}
	result := new(draapi.ResourceSlice)
	if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, result, nil); err != nil {
		return dracel.Device{}, err
	}
	return dracel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		LookupUniqueString:       result.LookupUniqueString,
		Attributes:               result.Spec.Devices[0].Attributes,
		Capacity:                 result.Spec.Devices[0].Capacity,
	}, nil
}
