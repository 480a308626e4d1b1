package plugin

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// indexNames are the plugin's indices over all pods. Profiles share one informer, so a name holds the profile's.
type indexNames struct {
	claim   string // pods of the profile by namespace/name of a claim they use
	waiting string // pods of the profile without a node
}

func indexNamesOf(profile string) indexNames {
	return indexNames{claim: "drawbridge-claim-" + profile, waiting: "drawbridge-waiting-" + profile}
}

const waiting = "waiting"

func (n indexNames) functions(profile string) cache.Indexers {
	return cache.Indexers{
		n.claim: func(object any) ([]string, error) {
			pod, ok := object.(*v1.Pod)
			if !ok || !waitsIn(profile, pod) {
				return nil, nil
			}
			return claimKeys(pod), nil
		},
		n.waiting: func(object any) ([]string, error) {
			pod, ok := object.(*v1.Pod)
			if !ok || !waitsIn(profile, pod) {
				return nil, nil
			}
			return []string{waiting}, nil
		},
	}
}

func waitsIn(profile string, pod *v1.Pod) bool {
	return pod.Spec.SchedulerName == profile && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil
}

// claimKeys names the claims of a pod as far as they are known.
func claimKeys(pod *v1.Pod) []string {
	var keys []string
	for index := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[index])
		if err == nil && name != nil {
			keys = append(keys, pod.Namespace+"/"+*name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// PreEnqueue keeps a pod out of the queue while it cannot be decided: the allocator is out of service or another one
// leads, or a claim does not exist, belongs to somebody else or is being deleted. Nothing is asked here.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	health := p.follower.Health()
	if !health.Usable {
		if !health.Quiet {
			p.tell(pod, waits(health.Message))
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(health.Message))
	}
	if _, err := p.claimsOf(pod); err != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	return nil
}

// tell writes an event on a gated pod: the scheduler itself says nothing about pods that it does not try.
func (p *Plugin) tell(pod *v1.Pod, sentence string) {
	p.gatedMutex.Lock()
	told := p.gated[pod.UID] == sentence
	p.gated[pod.UID] = sentence
	p.gatedMutex.Unlock()
	if told {
		return
	}
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", sentence)
}

// claimsOf returns the claims of a pod, or what is missing before it can be decided.
func (p *Plugin) claimsOf(pod *v1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var found []*resourcev1.ResourceClaim
	for index := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[index])
		if err != nil {
			return nil, err
		}
		if name == nil { // its template asks for nothing
			continue
		}
		claim, err := p.claims.ResourceClaims(pod.Namespace).Get(*name)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("resourceclaim %q does not exist", *name)
		}
		if err != nil {
			return nil, err
		}
		if claim.DeletionTimestamp != nil {
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, claim, true); err != nil {
				return nil, err
			}
		}
		found = append(found, claim)
	}
	return found, nil
}

// wake has pods tried again that the allocator named, or all that wait.
func (p *Plugin) wake(logger klog.Logger, keys []string, all bool) {
	if all {
		p.gatedMutex.Lock()
		clear(p.gated)
		p.gatedMutex.Unlock()
	}
	pods := map[string]*v1.Pod{}
	for _, pod := range p.asleep(keys, all) {
		pods[string(pod.UID)] = pod
	}
	if len(pods) > 0 {
		logger.V(4).Info("Waking pods", "plugin", Name, "pods", len(pods), "all", all)
		p.handle.Activate(logger, pods)
	}
}

func (p *Plugin) asleep(keys []string, all bool) []*v1.Pod {
	var found []*v1.Pod
	if all {
		objects, err := p.podIndex.ByIndex(p.names.waiting, waiting)
		if err != nil {
			panic(err) // the index was made in New
		}
		for _, object := range objects {
			found = append(found, object.(*v1.Pod))
		}
		return found
	}
	for _, key := range keys {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			continue
		}
		// A pod that is gone meanwhile needs no waking.
		pod, err := p.pods.Pods(namespace).Get(name)
		if err == nil && waitsIn(p.profile, pod) {
			found = append(found, pod)
		}
	}
	return found
}

// EventsToRegister lists what may help a pod that the plugin refused. That somebody gave a device back is not in it: the
// allocator says so itself, for the pods that could use it, and as soon as it knows. The scheduler sees the claim a
// few milliseconds earlier, and would have all waiting pods refused once more.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:             fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			QueueingHintFn:    p.afterClaim,
			PreQueueingHintFn: p.podsOfClaim,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodGeneratedResourceClaim},
			QueueingHintFn: p.afterOwnUpdate,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			QueueingHintFn: p.afterClass,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add | fwk.Update},
			QueueingHintFn: p.afterDevices,
		},
		{
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAllocatable,
			},
		},
	}, nil
}

// podsOfClaim narrows an event about a claim to the pods that use it.
func (p *Plugin) podsOfClaim(_ klog.Logger, before, after any) (fwk.PreQueueingHintResult, error) {
	claim := claimOf(after)
	if claim == nil {
		claim = claimOf(before)
	}
	if claim == nil {
		return fwk.PreQueueingHintResult{AllPods: true}, nil // deleted in a way that nobody saw
	}
	objects, err := p.podIndex.ByIndex(p.names.claim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return fwk.PreQueueingHintResult{}, err
	}
	var pods []types.NamespacedName
	for _, object := range objects {
		pod := object.(*v1.Pod)
		pods = append(pods, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
	return fwk.PreQueueingHintResult{Pods: pods}, nil
}

func claimOf(object any) *resourcev1.ResourceClaim {
	claim, _ := object.(*resourcev1.ResourceClaim)
	return claim
}

func (p *Plugin) afterClaim(_ klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, fresh := claimOf(before), claimOf(after)
	if fresh == nil {
		return fwk.QueueSkip, nil // a pod whose claim is gone waits for another one
	}
	claims, err := p.claimsOf(pod)
	if err != nil {
		return fwk.QueueSkip, nil // something is still missing, and PreEnqueue would stop it
	}
	for _, claim := range claims {
		if claim.UID == fresh.UID {
			return hint(old == nil || statusChanged(old, fresh)), nil
		}
	}
	return fwk.QueueSkip, nil
}

// statusChanged tells whether a pod that uses the claim may be decided otherwise. Finalizers and labels are no reason.
func statusChanged(before, after *resourcev1.ResourceClaim) bool {
	return !equality.Semantic.DeepEqual(before.Status, after.Status)
}

func (p *Plugin) afterOwnUpdate(_ klog.Logger, _ *v1.Pod, _, after any) (fwk.QueueingHint, error) {
	pod, ok := after.(*v1.Pod)
	if !ok {
		return fwk.Queue, fmt.Errorf("unexpected object %T in place of a pod", after)
	}
	_, err := p.claimsOf(pod)
	return hint(err == nil), nil
}

func (p *Plugin) afterClass(_ klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, _ := before.(*resourcev1.DeviceClass)
	fresh, _ := after.(*resourcev1.DeviceClass)
	if old == nil && fresh == nil {
		return fwk.Queue, nil
	}
	claims, err := p.claimsOf(pod)
	if err != nil {
		return fwk.QueueSkip, nil
	}
	wanted := classesOf(claims)
	resources := requested(pod)
	for _, class := range []*resourcev1.DeviceClass{old, fresh} {
		if class == nil {
			continue
		}
		if wanted[class.Name] || standsFor(class, resources) {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}

// afterDevices cannot tell which classes a device belongs to; that takes the allocator. Generations do not tell what is
// new either: the scheduler reports a change of taint rules as an update of slices.
func (p *Plugin) afterDevices(_ klog.Logger, pod *v1.Pod, _, _ any) (fwk.QueueingHint, error) {
	return hint(p.concerns(pod)), nil
}

func hint(queue bool) fwk.QueueingHint {
	if queue {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// classesOf names the device classes that claims ask for.
func classesOf(claims []*resourcev1.ResourceClaim) map[string]bool {
	names := map[string]bool{}
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				names[request.Exactly.DeviceClassName] = true
			}
			for _, alternative := range request.FirstAvailable {
				names[alternative.DeviceClassName] = true
			}
		}
	}
	return names
}
