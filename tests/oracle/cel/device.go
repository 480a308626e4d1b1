//go:build !minor38

package main

import dracel "k8s.io/dynamic-resource-allocation/cel"

func converted(d device) (dracel.Device, error) { return dracel.Device(d), nil }
