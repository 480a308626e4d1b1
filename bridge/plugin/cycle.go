package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/sidecar"
)

const stateKey fwk.StateKey = Name

// cycle is what the plugin keeps about one attempt to schedule one pod. There is none for pods that do not concern it.
type cycle struct {
	answer *sidecar.Answer
	scores map[string]int64
	reason map[string]string // why a node does not fit

	// What the scheduler supposes about one node beyond the present; each clone has its own.
	added, removed []*v1.Pod
	// anywhere has Filter look away: PostFilter asks what the other plugins alone say.
	anywhere bool

	// Shared by all clones.
	held *held
}

// held is the reservation of a pod, from Reserve to the end of its binding.
type held struct {
	broken      atomic.Bool // a call of this attempt has found the allocator out of service
	attempted   bool
	reservation string
}

// Clone copies what AddPod and RemovePod change.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.added = slices.Clone(c.added)
	clone.removed = slices.Clone(c.removed)
	return &clone
}

func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	found, _ := data.(*cycle)
	return found
}

// PreFilter asks the allocator once about the pod and all nodes.
func (p *Plugin) PreFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if pod.Spec.NodeName != "" { // it runs, and wants more of what is not a device
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if conflict := p.conflicting(); conflict != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, conflict)
	}
	// Two schedulers share one lease, so this holds for pods without claims as well.
	if health := p.follower.Health(); !health.Usable {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(health.Message))
	}
	if !p.concerns(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if _, err := p.claimsOf(pod); err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	answer, err := p.client.PreFilter(ctx, pod)
	if err != nil {
		return nil, p.outcome(ctx, pod, err)
	}
	if answer.Verdict == sidecar.Skip {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	now := &cycle{answer: answer, scores: map[string]int64{}, reason: reasonsOf(answer), held: &held{}}
	state.Write(stateKey, now)
	return now.obey()
}

// obey turns a verdict into what the scheduler goes on with.
func (c *cycle) obey() (*fwk.PreFilterResult, *fwk.Status) {
	answer := c.answer
	names := make(sets.Set[string], len(answer.Nodes))
	for _, node := range answer.Nodes {
		c.scores[node.Name] = node.Score
		names.Insert(node.Name)
	}
	switch message := messageOf(answer); answer.Verdict {
	case sidecar.Waiting, sidecar.Never:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, message)
	case sidecar.Undecided:
		if len(names) == 0 {
			return nil, fwk.AsStatus(fmt.Errorf("the drawbridge allocator is undecided: %s", message))
		}
	default:
		if len(names) == 0 {
			// Preemption may help, so the other plugins go on with their preparations.
			return nil, fwk.NewStatus(fwk.Unschedulable, message)
		}
	}
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

func messageOf(answer *sidecar.Answer) string {
	if answer.Message != "" {
		return sidecar.Shorten(answer.Message)
	}
	if len(answer.Reasons) > 0 && answer.Reasons[0].Message != "" {
		return sidecar.Shorten(answer.Reasons[0].Message)
	}
	return "no node has the devices that the pod asks for"
}

func reasonsOf(answer *sidecar.Answer) map[string]string {
	reasons := map[string]string{}
	for _, reason := range answer.Reasons {
		message := sidecar.Shorten(reason.Message)
		for _, node := range reason.Nodes {
			reasons[node] = message
		}
	}
	return reasons
}

// PreFilterExtensions returns the plugin itself: nominated pods and victims are part of its question.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod notes a pod that the scheduler supposes to be on the node.
func (p *Plugin) AddPod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if now, pod := cycleOf(state), info.GetPod(); now != nil && len(pod.Spec.ResourceClaims) > 0 {
		now.removed, now.added = moved(pod, now.removed, now.added)
	}
	return nil
}

// RemovePod notes a pod that the scheduler supposes to be gone.
func (p *Plugin) RemovePod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if now, pod := cycleOf(state), info.GetPod(); now != nil && len(pod.Spec.ResourceClaims) > 0 {
		now.added, now.removed = moved(pod, now.added, now.removed)
	}
	return nil
}

// moved takes a pod out of one list if it is there, and puts it into the other one if it is not.
func moved(pod *v1.Pod, from, to []*v1.Pod) (left, grown []*v1.Pod) {
	is := func(other *v1.Pod) bool { return other.UID == pod.UID }
	if slices.ContainsFunc(from, is) {
		return slices.DeleteFunc(from, is), to
	}
	return from, append(to, pod)
}

// Filter looks the node up in the answer. It asks again only if the scheduler supposes pods to come or go.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	now := cycleOf(state)
	if now == nil || now.anywhere {
		return nil
	}
	node := info.Node().Name
	if len(now.added) > 0 || len(now.removed) > 0 {
		return p.filterAgain(ctx, now, node)
	}
	if _, fits := now.scores[node]; fits {
		return nil
	}
	if reason := now.reason[node]; reason != "" {
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	return fwk.NewStatus(fwk.Unschedulable, messageOf(now.answer))
}

func (p *Plugin) filterAgain(ctx context.Context, now *cycle, node string) *fwk.Status {
	if now.answer.Token == "" { // the allocator does not remember the question
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, messageOf(now.answer))
	}
	// Preemption may ask about a hundred nodes; one deadline is enough to wait for.
	if now.held.broken.Load() {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(p.follower.Health().Message))
	}
	fit, err := p.client.Filter(ctx, now.answer.Token, node, now.added, now.removed)
	if err == nil && fit.Fits {
		return nil
	}
	if err == nil {
		return fwk.NewStatus(fwk.Unschedulable, sidecar.Shorten(fit.Message))
	}
	if ctx.Err() == nil && !sidecar.Outdated(err) {
		now.held.broken.Store(true)
	}
	if sidecar.MayRecover(err) {
		p.follower.Missed(err)
	}
	// No error: it would end the attempt for all nodes.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
}

// PreScore has Score left out for pods that are not the allocator's business.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	return skipWithout(cycleOf(state))
}

func skipWithout(now *cycle) *fwk.Status {
	if now == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns what the allocator thinks of the node.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	now := cycleOf(state)
	if now == nil {
		return 0, nil
	}
	return now.scores[info.Node().Name], nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore stretches the scores so that the best node has the most that the scheduler knows.
func (p *Plugin) NormalizeScore(
	_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	var best int64
	for _, node := range scores {
		best = max(best, node.Score)
	}
	if best == 0 {
		return nil
	}
	for index := range scores {
		scores[index].Score = scores[index].Score * fwk.MaxScore / best
	}
	return nil
}
