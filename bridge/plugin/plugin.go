// Package plugin is the scheduler framework plugin Drawbridge, which passes the allocator's decisions to the scheduler.
//
// The path of a pod, with the allocator's endpoint that each extension point calls (allocator/service/schedulers/plugin.py):
//
//	PreEnqueue     none: the pod waits in the queue until its claims exist and the allocator is in service
//	PreFilter      prefilter: one call for all nodes; the answer has a token for the pod
//	Filter, Score  none: the node is looked up in the answer to prefilter
//	Reserve        reserve: the allocator holds devices on the chosen node
//	PreBind, Bind  commit: the allocator writes the claims; the scheduler's binder binds the pod, or Bind one version of it
//	Unreserve      unreserve: the allocator releases the devices
//	PostFilter     postfilter: the allocator chooses and evicts victims
//
// The plugin itself allocates nothing, reads no device and writes no object but such a binding. It replaces DynamicResources, which must be
// disabled in the profile.
//
// How failures affect a pod:
//
//	the allocator is starting       the pod waits; for some seconds it gets no event
//	the allocator is out of service the pod waits with the allocator's message; all waiting pods are requeued when the allocator is back
//	no answer before a deadline     the attempt fails and is retried after backoff, because this pod may be the cause
//	the cluster changed (409)       the pod waits with the allocator's message and is retried after backoff
//	allocator's copies are older    the pod waits until the allocator sees the class that serves the pod; Bind binds no pod without devices
//	any other bad answer            the attempt fails and is retried after backoff
//	the pod does not fit now        the pod waits for an event that may help, or until the allocator requeues it
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
	standbyPause  = 2 * time.Second
)

// Plugin is one profile's connection to the allocator.
type Plugin struct {
	handle   fwk.Handle
	profile  string
	client   *sidecar.Client
	follower *sidecar.Follower
	binding  time.Duration // how long the devices of a pod may take to become ready
	pause    time.Duration // between two calls of commit
	standby  time.Duration // how long PreFilter waits, while another replica leads, before it rejects a pod

	claims   resourcelisters.ResourceClaimLister
	nodes    corelisters.NodeLister
	pods     corelisters.PodLister
	podIndex cache.Indexer
	names    indexNames

	// supposition is set while PodGroupPostFilter places a group as if pods of lower priority were gone.
	// Scheduling cycles are sequential, so only one goroutine uses it.
	supposition sidecar.Supposition

	gatedMutex sync.Mutex
	gated      map[types.UID]string // the message of each gated pod's last event

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
	_ fwk.BindPlugin               = &Plugin{}
	_ fwk.SignPlugin               = &Plugin{}
)

// New is the factory that kube-scheduler calls for each profile that enables the plugin. The allocator need not be running yet.
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
		standby:  standbyPause,
		claims:   factory.Resource().V1().ResourceClaims().Lister(),
		nodes:    factory.Core().V1().Nodes().Lister(),
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

// SignPod gives no signature to pods with claims, because equal pods can get different results.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with resource claims are decided one by one")
	}
	return nil, nil
}

// conflicting returns what is wrong with the profile, or "". If DynamicResources is enabled, two allocators would allocate the same
// devices. If another plugin binds first, the claims are never written.
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
				p.conflict = fmt.Sprintf("profile %s has DynamicResources enabled beside %s, and both would allocate devices: "+
					"disable DynamicResources under plugins.multiPoint", p.profile, Name)
			}
		}
		if binders := profile.ListPlugins().Bind.Enabled; p.conflict == "" && (len(binders) == 0 || binders[0].Name != Name) {
			p.conflict = fmt.Sprintf("profile %s binds pods before their claims are written: name %s under plugins.bind, "+
				"as manifests/bridge/scheduler.yaml does", p.profile, Name)
		}
	})
	return p.conflict
}

// outcome returns the status of a pod whose call to the allocator failed.
func (p *Plugin) outcome(ctx context.Context, pod *v1.Pod, err error) *fwk.Status {
	switch {
	case sidecar.MayRecover(err):
		p.follower.Missed(err)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
	case sidecar.Outdated(err):
		return p.again(ctx, pod, err.Error())
	default:
		return fwk.AsStatus(fmt.Errorf("the drawbridge allocator: %w", err))
	}
}

// again returns the status of a pod that is scheduled again. The pod is still being scheduled: after Activate, the scheduler retries it
// as soon as its backoff is over.
func (p *Plugin) again(ctx context.Context, pod *v1.Pod, why string) *fwk.Status {
	p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{string(pod.UID): pod})
	return fwk.NewStatus(fwk.Unschedulable, "the pod is scheduled again: "+sidecar.Shorten(why))
}

func waits(why string) string {
	return "waits for the drawbridge allocator: " + sidecar.Shorten(why)
}
