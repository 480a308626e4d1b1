//go:build !minor38

package plugin

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// unscheduledPods returns the pods of a group that are being scheduled. The method was renamed in 1.38.
func unscheduledPods(group fwk.PodGroupInfo) []*v1.Pod { return group.GetUnscheduledPods() }
