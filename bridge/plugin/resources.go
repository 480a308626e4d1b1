package plugin

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// concerns tells whether the allocator has a say in where a pod goes: it has claims, or asks for an extended resource
// that a DeviceClass stands for. With DynamicResources disabled the allocator makes the claim of such a resource, and
// NodeResourcesFit lets it pass, so without the allocator the pod would be bound to a node that has no device for it.
func (p *Plugin) concerns(pod *v1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	manager := p.handle.SharedDRAManager()
	if manager == nil {
		return false
	}
	served := func(resource v1.ResourceName) bool {
		return manager.DeviceClassResolver().GetDeviceClass(resource) != nil
	}
	return slices.ContainsFunc(requested(pod), served)
}

// hasClaims tells whether a pod may hold devices: by claims that it names, or by the one that stands for its extended
// resources.
func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// requested names the resources of a pod that are not Kubernetes' own.
func requested(pod *v1.Pod) []v1.ResourceName {
	var names []v1.ResourceName
	collect := func(containers []v1.Container) {
		for index := range containers {
			for name, amount := range containers[index].Resources.Requests {
				if strings.Contains(string(name), "/") && !amount.IsZero() {
					names = append(names, name)
				}
			}
		}
	}
	collect(pod.Spec.InitContainers)
	collect(pod.Spec.Containers)
	slices.Sort(names)
	return slices.Compact(names)
}

// standsFor tells whether a class is behind one of the resources, by the name it declares or the one that it has anyway.
func standsFor(class *resourcev1.DeviceClass, resources []v1.ResourceName) bool {
	own := v1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class.Name)
	if slices.Contains(resources, own) {
		return true
	}
	declared := class.Spec.ExtendedResourceName
	return declared != nil && slices.Contains(resources, v1.ResourceName(*declared))
}
