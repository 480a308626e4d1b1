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

// indexNames are the names of the plugin's indices over all pods. Profiles share one informer, so each name contains the profile.
type indexNames struct {
	claim   string // the profile's pods without a node, by namespace/name of the claims that they use
	waiting string // the profile's pods without a node
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

// claimKeys returns namespace/name of each claim of the pod whose name is known.
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

// PreEnqueue keeps a pod out of the active queue while the allocator is out of service or another replica leads, and while a
// claim of the pod does not exist, belongs to another pod or is being deleted. It makes no call.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	health := p.follower.Health()
	if !health.Usable {
		if !health.Quiet {
			p.warnGated(pod, waits(health.Message))
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(health.Message))
	}
	if _, err := p.claimsOf(pod); err != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	return nil
}

// warnGated writes an event about a gated pod, once for each message, because the scheduler writes no event about a pod that it does
// not try.
func (p *Plugin) warnGated(pod *v1.Pod, sentence string) {
	p.gatedMutex.Lock()
	repeated := p.gated[pod.UID] == sentence
	p.gated[pod.UID] = sentence
	p.gatedMutex.Unlock()
	if repeated {
		return
	}
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", sentence)
}

// claimsOf returns the claims of a pod. The error names the first claim that is missing or unusable.
func (p *Plugin) claimsOf(pod *v1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var claims []*resourcev1.ResourceClaim
	for index := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[index])
		if err != nil {
			return nil, err
		}
		if name == nil { // the template requests nothing, so there is no claim
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
		claims = append(claims, claim)
	}
	return claims, nil
}

// wake requeues the pods with these keys (namespace/name), or all pods of the profile without a node. The follower calls it.
func (p *Plugin) wake(logger klog.Logger, keys []string, all bool) {
	if all {
		p.gatedMutex.Lock()
		clear(p.gated)
		p.gatedMutex.Unlock()
	}
	pods := map[string]*v1.Pod{}
	for _, pod := range p.waitingPods(keys, all) {
		pods[string(pod.UID)] = pod
	}
	if len(pods) > 0 {
		logger.V(4).Info("Waking pods", "plugin", Name, "pods", len(pods), "all", all)
		p.handle.Activate(logger, pods)
	}
}

func (p *Plugin) waitingPods(keys []string, all bool) []*v1.Pod {
	var pods []*v1.Pod
	if all {
		objects, err := p.podIndex.ByIndex(p.names.waiting, waiting)
		if err != nil {
			panic(err) // build adds the index
		}
		for _, object := range objects {
			pods = append(pods, object.(*v1.Pod))
		}
		return pods
	}
	for _, key := range keys {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			continue
		}
		// Pods deleted meanwhile are skipped.
		pod, err := p.pods.Pods(namespace).Get(name)
		if err == nil && waitsIn(p.profile, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// EventsToRegister lists the events that may help a pod that the plugin rejected. The release of devices is not among them, because
// the allocator requeues the pods that can use the devices. The scheduler sees the released claim a few milliseconds before the
// allocator does, so if that event caused a retry, all waiting pods would be rejected once more.
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
		return fwk.PreQueueingHintResult{AllPods: true}, nil // the deletion was missed
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
		return fwk.QueueSkip, nil // the claim was deleted; the pod waits for a new one
	}
	claims, err := p.claimsOf(pod)
	if err != nil {
		return fwk.QueueSkip, nil // a claim is still missing, so PreEnqueue would gate the pod
	}
	for _, claim := range claims {
		if claim.UID == fresh.UID {
			return hint(old == nil || statusChanged(old, fresh)), nil
		}
	}
	return fwk.QueueSkip, nil
}

// statusChanged reports whether a change of the claim can change the decision about its pods. Finalizers and labels cannot.
func statusChanged(before, after *resourcev1.ResourceClaim) bool {
	return !equality.Semantic.DeepEqual(before.Status, after.Status)
}

func (p *Plugin) afterOwnUpdate(_ klog.Logger, _ *v1.Pod, _, after any) (fwk.QueueingHint, error) {
	pod, ok := after.(*v1.Pod)
	if !ok {
		return fwk.Queue, fmt.Errorf("unexpected object %T instead of a pod", after)
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

// afterDevices requeues every pod that needs the allocator, because only the allocator knows which classes a device belongs to.
// Comparing generations of slices does not help: the scheduler reports a changed DeviceTaintRule as an update of slices.
func (p *Plugin) afterDevices(_ klog.Logger, pod *v1.Pod, _, _ any) (fwk.QueueingHint, error) {
	return hint(p.concerns(pod)), nil
}

func hint(queue bool) fwk.QueueingHint {
	if queue {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// classesOf returns the device classes that claims request.
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
