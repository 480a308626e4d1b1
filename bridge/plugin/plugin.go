// Package plugin is the scheduler framework plugin Drawbridge: it asks the allocator beside the scheduler and obeys.
//
// One call about a pod answers every node; Filter and Score look it up. Reserve, Unreserve and PreBind carry the
// allocator's reservation from the decision to the written claims. The plugin allocates nothing itself, reads no
// device and writes no object. It takes the place of DynamicResources, which has to be disabled in the profile.
//
// What a pod is told and when it is tried again, by what went wrong:
//
//	allocator is being started  waits, and nothing is said for some seconds
//	allocator out of service    waits with the allocator's words; all waiting pods are woken when it is back
//	no answer before a deadline error, tried again after back-off: it may be this pod's fault alone
//	the cluster moved on (409)  waits with the allocator's words, tried again after back-off
//	any other bad answer        error, tried again after back-off
//	does not fit now            waits for an event that may help, or for the allocator to name the pod
package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"drawbridge.dev/bridge/sidecar"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "Drawbridge"

const (
	stateInterval = time.Second
	stateTimeout  = 3 * time.Second
	startGrace    = 10 * time.Second // the allocator reads the cluster and takes its lease before it is ready
	commitPause   = time.Second
)

// Plugin is one profile's connection to the allocator.
type Plugin struct {
	handle   fwk.Handle
	profile  string
	client   *sidecar.Client
	follower *sidecar.Follower
	binding  time.Duration
	pause    time.Duration // between two calls of commit

	claims   resourcelisters.ResourceClaimLister
	pods     corelisters.PodLister
	podIndex cache.Indexer
	names    indexNames

	// supposition is that of the attempt to place a group as if less important pods were gone, while there is one.
	// Scheduling cycles follow one another, so it is set and read by one goroutine.
	supposition sidecar.Supposition

	gatedMutex sync.Mutex
	gated      map[types.UID]string // what each gated pod's last event said

	conflictOnce sync.Once
	conflict     string
}

var (
	_ fwk.PreEnqueuePlugin         = &Plugin{}
	_ fwk.EnqueueExtensions        = &Plugin{}
	_ fwk.PreFilterPlugin          = &Plugin{}
	_ fwk.FilterPlugin             = &Plugin{}
	_ fwk.PostFilterPlugin         = &Plugin{}
	_ fwk.PodGroupPostFilterPlugin = &Plugin{}
	_ fwk.PreScorePlugin           = &Plugin{}
	_ fwk.ScorePlugin              = &Plugin{}
	_ fwk.ReservePlugin            = &Plugin{}
	_ fwk.PreBindPlugin            = &Plugin{}
	_ fwk.SignPlugin               = &Plugin{}
)

// New is the factory that kube-scheduler calls for each profile with the plugin. The allocator need not be there yet.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	plugin, err := build(ctx, object, handle)
	if err != nil {
		return nil, err
	}
	go plugin.follower.Run(ctx)
	return plugin, nil
}

func build(ctx context.Context, object runtime.Object, handle fwk.Handle) (*Plugin, error) {
	args, err := argsOf(object)
	if err != nil {
		return nil, err
	}
	factory := handle.SharedInformerFactory()
	pods := factory.Core().V1().Pods()
	profile := handle.ProfileName()
	names := indexNamesOf(profile)
	if err := pods.Informer().AddIndexers(names.functions(profile)); err != nil {
		return nil, fmt.Errorf("%s: indexing pods: %w", Name, err)
	}
	plugin := &Plugin{
		handle:   handle,
		profile:  profile,
		client:   args.client(),
		binding:  args.BindingTimeout.Duration,
		pause:    commitPause,
		claims:   factory.Resource().V1().ResourceClaims().Lister(),
		pods:     pods.Lister(),
		podIndex: pods.Informer().GetIndexer(),
		names:    names,
		gated:    map[types.UID]string{},
	}
	plugin.follower = sidecar.NewFollower(plugin.client, stateInterval, startGrace, func(pods []string, all bool) {
		plugin.wake(klog.FromContext(ctx), pods, all)
	})
	return plugin, nil
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// SignPod refuses a signature to pods with claims: what one of them gets says nothing about the next.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with resource claims are decided one by one")
	}
	return nil, nil
}

// conflicting says what is wrong with the profile, if anything: two allocators in one profile give devices away twice.
func (p *Plugin) conflicting() string {
	p.conflictOnce.Do(func() {
		profile, ok := p.handle.(interface {
			ListPlugins() *schedulerconfig.Plugins
		})
		if !ok {
			return
		}
		for _, plugin := range profile.ListPlugins().Filter.Enabled {
			if plugin.Name == "DynamicResources" {
				p.conflict = fmt.Sprintf("profile %s has DynamicResources enabled beside %s, and both would allocate: "+
					"disable DynamicResources under plugins.multiPoint", p.profile, Name)
			}
		}
	})
	return p.conflict
}

// outcome turns a failed call into what the scheduler is told about the pod.
func (p *Plugin) outcome(ctx context.Context, pod *v1.Pod, err error) *fwk.Status {
	switch {
	case sidecar.MayRecover(err):
		p.follower.Missed(err)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
	case sidecar.Outdated(err):
		// The pod is in flight, so this has it tried again as soon as its back-off is over.
		p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{string(pod.UID): pod})
		return fwk.NewStatus(fwk.Unschedulable, "to be decided again: "+sidecar.Shorten(err.Error()))
	default:
		return fwk.AsStatus(fmt.Errorf("the drawbridge allocator: %w", err))
	}
}

func waits(why string) string {
	return "waits for the drawbridge allocator: " + sidecar.Shorten(why)
}
