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
	scores map[string]int64  // of nodes that are named and fit
	reason map[string]string // of nodes that are named and do not fit: why not

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
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, infos []fwk.NodeInfo,
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
	answer, err := p.client.PreFilter(ctx, pod, censusOf(infos), p.supposition)
	if err != nil {
		return nil, p.outcome(ctx, pod, err)
	}
	if answer.Verdict == sidecar.Skip {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	now := begin(answer)
	state.Write(stateKey, now)
	return now.obey(infos)
}

func begin(answer *sidecar.Answer) *cycle {
	return &cycle{answer: answer, scores: scoresOf(answer), reason: reasonsOf(answer), held: &held{}}
}

func censusOf(infos []fwk.NodeInfo) sidecar.Census {
	return sidecar.CensusOf(func(yield func(string) bool) {
		for _, info := range infos {
			if !yield(info.Node().Name) {
				return
			}
		}
	})
}

// obey turns a verdict into what the scheduler goes on with, on these nodes.
func (c *cycle) obey(infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	result := &fwk.PreFilterResult{}
	if !c.everywhere() {
		result.NodeNames = c.fitting(infos)
	}
	nowhere := result.NodeNames != nil && len(result.NodeNames) == 0
	switch message := messageOf(c.answer); c.answer.Verdict {
	case sidecar.Waiting, sidecar.Never:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, message)
	case sidecar.Undecided:
		if nowhere {
			return nil, fwk.AsStatus(fmt.Errorf("the drawbridge allocator is undecided: %s", message))
		}
	default:
		if nowhere {
			// Preemption may help, so the other plugins go on with their preparations.
			return nil, fwk.NewStatus(fwk.Unschedulable, message)
		}
	}
	return result, nil
}

// othersFit tells whether the nodes that are not named fit.
func (c *cycle) othersFit() bool { return c.answer.Rest != nil && c.answer.Rest.Fit }

// everywhere tells whether the pod fits on all nodes, so that there is nothing to narrow down to.
func (c *cycle) everywhere() bool { return c.othersFit() && len(c.reason) == 0 }

func (c *cycle) fitting(infos []fwk.NodeInfo) sets.Set[string] {
	names := sets.New[string]()
	for name := range c.scores {
		names.Insert(name)
	}
	if !c.othersFit() {
		return names
	}
	for _, info := range infos {
		if name := info.Node().Name; c.fits(name) {
			names.Insert(name)
		}
	}
	return names
}

func (c *cycle) fits(node string) bool {
	if _, named := c.scores[node]; named {
		return true
	}
	_, refused := c.reason[node]
	return !refused && c.othersFit()
}

func (c *cycle) score(node string) int64 {
	if score, named := c.scores[node]; named || !c.fits(node) {
		return score
	}
	return c.answer.Rest.Score
}

// why says why a node does not fit.
func (c *cycle) why(node string) string {
	reason := c.reason[node]
	if _, named := c.reason[node]; !named && c.answer.Rest != nil {
		reason = sidecar.Shorten(c.answer.Rest.Message)
	}
	if reason == "" {
		return messageOf(c.answer)
	}
	return reason
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

func scoresOf(answer *sidecar.Answer) map[string]int64 {
	scores := make(map[string]int64, len(answer.Nodes))
	for _, node := range answer.Nodes {
		scores[node.Name] = node.Score
	}
	return scores
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
	if now, pod := cycleOf(state), info.GetPod(); now != nil && hasClaims(pod) {
		now.removed, now.added = moved(pod, now.removed, now.added)
	}
	return nil
}

// RemovePod notes a pod that the scheduler supposes to be gone.
func (p *Plugin) RemovePod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if now, pod := cycleOf(state), info.GetPod(); now != nil && hasClaims(pod) {
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
	if now.fits(node) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, now.why(node))
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
	return now.score(info.Node().Name), nil
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
