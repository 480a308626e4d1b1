package plugin

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// concerns reports whether a pod needs the allocator: it has claims, or requests an extended resource of a DeviceClass.
// With DynamicResources disabled, the allocator creates the claim for such a resource, and NodeResourcesFit ignores the
// resource. So without the allocator the pod could be bound to a node that has no device for it.
func (p *Plugin) concerns(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || len(p.served(pod)) > 0
}

// served returns the extended resources of a pod that a DeviceClass serves, as far as the scheduler knows.
func (p *Plugin) served(pod *v1.Pod) []v1.ResourceName {
	manager := p.handle.SharedDRAManager()
	if manager == nil {
		return nil
	}
	return slices.DeleteFunc(requested(pod), func(resource v1.ResourceName) bool {
		return manager.DeviceClassResolver().GetDeviceClass(resource) == nil
	})
}

// offers reports whether a device plugin of the node offers a resource. If so, NodeResourcesFit counts the resource.
func (p *Plugin) offers(node string, resource v1.ResourceName) bool {
	object, err := p.nodes.Get(node)
	if err != nil {
		return false
	}
	amount := object.Status.Allocatable[resource]
	return !amount.IsZero()
}

// hasClaims reports whether a pod can hold devices: through the claims that it names, or through the claim for its
// extended resources.
func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// requested returns the extended resources of a pod.
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

// standsFor reports whether a class serves one of the resources, by the class's extendedResourceName or implicit name.
func standsFor(class *resourcev1.DeviceClass, resources []v1.ResourceName) bool {
	own := v1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class.Name)
	if slices.Contains(resources, own) {
		return true
	}
	declared := class.Spec.ExtendedResourceName
	return declared != nil && slices.Contains(resources, v1.ResourceName(*declared))
}
