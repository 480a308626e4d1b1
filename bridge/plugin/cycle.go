package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/sidecar"
)

const stateKey fwk.StateKey = Name

// cycle is the plugin's state of one attempt to schedule a pod. Pods that do not concern the plugin have none.
type cycle struct {
	answer *sidecar.Answer
	scores map[string]int64  // of the answer's nodes that fit
	reason map[string]string // why other nodes of the answer do not fit

	// Pods that the scheduler assumes to be added to or removed from a node; each clone has its own.
	added, removed []*v1.Pod
	// anywhere makes Filter accept all nodes: PostFilter needs the result of the other plugins alone.
	anywhere bool

	// Shared by all clones.
	held *held
}

// held is the reservation of a pod, from Reserve to the end of its binding.
type held struct {
	broken      atomic.Bool // whether a call of this attempt found the allocator out of service
	attempted   bool
	reservation string
	unready     bool // whether devices have to be made ready before the binding
	committed   bool
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
	if pod.Spec.NodeName != "" { // a running pod that is being resized
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if conflict := p.conflicting(); conflict != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, conflict)
	}
	// Two schedulers share one lease, so this holds for pods without claims as well.
	if health := p.patientHealth(ctx); !health.Usable {
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

// patientHealth returns the state of the allocator. While another replica leads or may lead by now, it waits a moment for a change: each
// pod that is refused gets an event, and the other replica's scheduler places the pods of this queue meanwhile.
func (p *Plugin) patientHealth(ctx context.Context) sidecar.Health {
	health := p.follower.Health()
	for end := time.Now().Add(p.standby); !health.Usable && health.Quiet && time.Now().Before(end) && ctx.Err() == nil; {
		rest(ctx, min(p.standby, stateInterval)/20)
		health = p.follower.Health()
	}
	return health
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

// obey turns a verdict into the result of PreFilter for these nodes.
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
			// Preemption may help and needs the state of the other plugins, so PreFilter continues.
			return nil, fwk.NewStatus(fwk.Unschedulable, message)
		}
	}
	return result, nil
}

// othersFit reports whether the nodes that the answer does not name fit.
func (c *cycle) othersFit() bool { return c.answer.Rest != nil && c.answer.Rest.Fit }

// everywhere reports whether the pod fits on all nodes, so that PreFilter need not list them.
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

// why returns why a node does not fit.
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

// PreFilterExtensions returns the plugin itself, because nominated pods and victims affect its answer.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod records a pod that the scheduler assumes to be on the node.
func (p *Plugin) AddPod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if now, pod := cycleOf(state), info.GetPod(); now != nil && hasClaims(pod) {
		now.removed, now.added = moved(pod, now.removed, now.added)
	}
	return nil
}

// RemovePod records a pod that the scheduler assumes to be deleted.
func (p *Plugin) RemovePod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if now, pod := cycleOf(state), info.GetPod(); now != nil && hasClaims(pod) {
		now.added, now.removed = moved(pod, now.added, now.removed)
	}
	return nil
}

// moved removes a pod from one list if it is there; otherwise it adds it to the other one.
func moved(pod *v1.Pod, from, to []*v1.Pod) (left, grown []*v1.Pod) {
	is := func(other *v1.Pod) bool { return other.UID == pod.UID }
	if slices.ContainsFunc(from, is) {
		return slices.DeleteFunc(from, is), to
	}
	return from, append(to, pod)
}

// Filter looks up the node in the answer. It asks again only if the scheduler assumes pods to be added or removed.
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
	if now.answer.Token == "" { // the allocator has not kept the question
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, messageOf(now.answer))
	}
	// Preemption may ask about a hundred nodes, which share one deadline.
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
	// Not an error, which would end the attempt for all nodes.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(err.Error()))
}

// PreScore skips Score for pods that do not concern the allocator.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	return skipWithout(cycleOf(state))
}

func skipWithout(now *cycle) *fwk.Status {
	if now == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns the allocator's score of the node.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	now := cycleOf(state)
	if now == nil {
		return 0, nil
	}
	return now.score(info.Node().Name), nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore scales the scores so that the best node has the maximum.
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
