// Command extended asks the scheduler's own code which claim it makes for the extended resources of a pod.
package main

import (
	"cmp"
	"slices"
	_ "unsafe" // go:linkname

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	_ "k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"drawbridge.dev/tests/oracle/lines"
)

//go:linkname createRequestsAndMappings k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.createRequestsAndMappings
func createRequestsAndMappings(*v1.Pod, map[v1.ResourceName]int64, klog.Logger, fwk.DeviceClassResolver) ([]resourceapi.DeviceRequest, []v1.ContainerExtendedResourceRequest)

type question struct {
	Pod         v1.Pod                    `json:"pod"`
	Classes     []resourceapi.DeviceClass `json:"classes"`
	Allocatable v1.ResourceList           `json:"allocatable"`
}

type answer struct {
	Classes  map[string]string                     `json:"classes"` // of the names that the pod asks for
	Totals   map[string]int64                      `json:"totals"`  // what it asks for, by these names
	Requests []resourceapi.DeviceRequest           `json:"requests"`
	Mappings []v1.ContainerExtendedResourceRequest `json:"mappings"`
}

func main() { lines.Serve(ask) }

func ask(q question) answer {
	classes := extendedresourcecache.NewExtendedResourceCache(klog.Background())
	// A class that loses its name when it comes loses the implicit one as well, so the winner comes last here.
	slices.SortFunc(q.Classes, func(a, b resourceapi.DeviceClass) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	for i := range q.Classes {
		classes.OnAdd(&q.Classes[i], false)
	}
	a := answer{Classes: map[string]string{}, Totals: map[string]int64{}}
	wanted := map[v1.ResourceName]int64{}
	for name, amount := range resource.PodRequests(&q.Pod, resource.PodResourcesOptions{}) {
		if amount.IsZero() || !schedutil.IsDRAExtendedResourceName(name) {
			continue
		}
		class := classes.GetDeviceClass(name)
		if class == nil {
			continue
		}
		a.Classes[string(name)] = class.Name
		a.Totals[string(name)] = amount.Value()
		if have := q.Allocatable[name]; have.Value() == 0 {
			wanted[name] = amount.Value()
		}
	}
	a.Requests, a.Mappings = createRequestsAndMappings(&q.Pod, wanted, klog.Background(), classes)
	return a
}
