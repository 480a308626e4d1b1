package plugin

import (
	"context"
	"slices"
	"sort"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/sidecar"
)

// PostFilter asks the allocator to make room on one of the nodes on which only devices are missing. The allocator deallocates claims
// of the pod that are allocated elsewhere, or chooses and evicts victims. If it can do neither, PostFilter returns Unschedulable, so
// that DefaultPreemption runs next. If the allocator gave no answer, PostFilter returns UnschedulableAndUnresolvable, so that
// DefaultPreemption does not run: the allocator may have evicted pods already, or decided against any eviction.
func (p *Plugin) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	if !p.follower.Health().Usable {
		// DefaultPreemption would clear nominatedNodeName. The next leader needs this field to learn for which pod devices were freed.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	attempt := cycleOf(state)
	if attempt == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	infos, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	victimsMayHelp := attempt.roomMayHelp() && mayPreempt(pod) && len(lesserPriorities(pod, infos)) > 0
	if !victimsMayHelp && !p.isAllocated(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	nodes := p.lackingOnlyDevices(ctx, state, pod, infos)
	if len(nodes) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	preemption, err := p.client.PostFilter(ctx, pod, nodes)
	if err != nil {
		if sidecar.MayRecover(err) {
			p.follower.Missed(err)
		}
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
	}
	if preemption.NominatedNode == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable, sidecar.Shorten(preemption.Message))
	}
	logger := klog.FromContext(ctx)
	logger.V(2).Info("The allocator makes room", "plugin", Name, "pod", klog.KObj(pod),
		"node", preemption.NominatedNode, "victims", preemption.Victims)
	nominated := &fwk.NominatingInfo{NominatedNodeName: preemption.NominatedNode, NominatingMode: fwk.ModeOverride}
	return &fwk.PostFilterResult{NominatingInfo: nominated}, nil
}

// PodGroupPostFilter asks the allocator to make room for a group. The scheduler places the group again, with all its plugins,
// while p.supposition tells the allocator to answer as if pods below a priority held no devices. The allocator reserves nothing.
// A binary search finds the lowest priority with which the group fits. Then every member has a node on which only devices are
// missing, and the allocator chooses the victims.
func (p *Plugin) PodGroupPostFilter(
	ctx context.Context, _ fwk.PodGroupCycleState, group fwk.PodGroupInfo, schedule fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	pods := unscheduledPods(group)
	if len(pods) == 0 || !slices.ContainsFunc(pods, p.concerns) || !mayPreempt(pods[0]) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	infos, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	priorities := lesserPriorities(pods[0], infos)
	var assignments *fwk.PodGroupAssignments // with the lowest priority that suffices
	sort.Search(len(priorities), func(index int) bool {
		below := int64(priorities[index]) + 1
		p.supposition = sidecar.Supposition{Suppose: string(uuid.NewUUID()), Below: &below}
		found, status := schedule(ctx)
		if status.IsSuccess() {
			assignments = found
		}
		return status.IsSuccess()
	})
	p.supposition = sidecar.Supposition{}
	if assignments == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	var members []sidecar.Member
	for _, assignment := range assignments.ProposedAssignments {
		members = append(members, sidecar.Member{Pod: assignment.GetPod(), Node: assignment.GetNodeName()})
	}
	found, err := p.client.PostFilterGroup(ctx, members)
	if err != nil {
		if sidecar.MayRecover(err) {
			p.follower.Missed(err)
		}
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
	}
	if len(found.Nominations) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, sidecar.Shorten(found.Message))
	}
	klog.FromContext(ctx).V(2).Info("The allocator makes room", "plugin", Name, "podGroup", klog.KObj(group),
		"victims", found.Victims)
	nominated := map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, nomination := range found.Nominations {
		info := &fwk.NominatingInfo{NominatedNodeName: nomination.Node, NominatingMode: fwk.ModeOverride}
		nominated[types.NamespacedName{Namespace: nomination.Namespace, Name: nomination.Name}] = info
	}
	return &fwk.PodGroupPostFilterResult{NominatingInfos: nominated}, nil
}

func (c *cycle) roomMayHelp() bool {
	return c.answer.Verdict == sidecar.Full || c.answer.Verdict == sidecar.Fits
}

func mayPreempt(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != v1.PreemptNever
}

// isAllocated reports whether a claim of the pod is allocated, perhaps on a node that the pod cannot use.
func (p *Plugin) isAllocated(pod *v1.Pod) bool {
	claims, _ := p.claimsOf(pod)
	return slices.ContainsFunc(claims, func(claim *resourcev1.ResourceClaim) bool {
		return claim.Status.Allocation != nil
	})
}

// lesserPriorities lists the priorities of all running pods with claims, if they are below the pod's own priority. It looks at all
// nodes, because several nodes may be able to use a device.
func lesserPriorities(pod *v1.Pod, infos []fwk.NodeInfo) []int32 {
	priority := corev1helpers.PodPriority(pod)
	priorities := sets.New[int32]()
	for _, info := range infos {
		for _, other := range info.GetPods() {
			running := other.GetPod()
			if lesser := corev1helpers.PodPriority(running); lesser < priority && hasClaims(running) {
				priorities.Insert(lesser)
			}
		}
	}
	return sets.List(priorities)
}

// lackingOnlyDevices returns the nodes that lack devices and that every other plugin accepts.
func (p *Plugin) lackingOnlyDevices(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, infos []fwk.NodeInfo,
) []string {
	others := state.Clone()
	withoutDevices := *cycleOf(state)
	withoutDevices.ignoreDevices = true
	others.Write(stateKey, &withoutDevices)
	var mutex sync.Mutex
	nodes := []string{}
	p.handle.Parallelizer().Until(ctx, len(infos), func(index int) {
		info := infos[index]
		name := info.Node().Name
		if withoutDevices.fits(name) {
			return // the node has the devices, so something else is missing
		}
		if !p.handle.RunFilterPlugins(ctx, others, pod, info).IsSuccess() {
			return
		}
		mutex.Lock()
		defer mutex.Unlock()
		nodes = append(nodes, name)
	}, Name)
	slices.Sort(nodes)
	return nodes
}
