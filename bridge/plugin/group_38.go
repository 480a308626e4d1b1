//go:build minor38

package plugin

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

func unscheduledPods(group fwk.PodGroupInfo) []*v1.Pod { return group.GetAllUnscheduledPods() }
