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

// cycle is the plugin's state for one attempt to schedule a pod. PreFilter writes it into the scheduler's CycleState, and all
// later extension points read it from there. For a pod that does not need the allocator there is no such state.
type cycle struct {
	answer *sidecar.Answer
	served []v1.ResourceName // the pod's extended resources that a DeviceClass served in PreFilter
	scores map[string]int64  // by name of a node that fits
	reason map[string]string // why a node does not fit, by the node's name

	// Pods that the scheduler assumes to be added to or removed from a node. AddPod and RemovePod change the lists of one clone.
	added, removed []*v1.Pod
	// ignoreDevices makes Filter accept all nodes, so that PostFilter gets the result of only the other plugins.
	ignoreDevices bool

	// All clones share this.
	held *held
}

// held is the state of the pod's reservation, from Reserve to the end of the binding.
type held struct {
	broken      atomic.Bool       // a call of Filter in this attempt failed, so Filter makes no further calls
	attempted   bool              // Reserve was called, so the allocator may hold devices even if no answer came
	reservation string            // "" if Reserve has not succeeded
	unready     bool              // devices have to be made ready before the binding
	committed   bool              // the claims are written
	resources   []v1.ResourceName // the extended resources that the written claims request
	version     string            // the only resourceVersion of the pod that may be bound; "" for any
}

// Clone copies the lists that AddPod and RemovePod change.
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
	attempt, _ := data.(*cycle)
	return attempt
}

// PreFilter calls the allocator once for all nodes. In later calls, the token of the answer identifies the pod.
func (p *Plugin) PreFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, infos []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if pod.Spec.NodeName != "" { // a running pod that is being resized
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if conflict := p.conflicting(); conflict != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, conflict)
	}
	// Only the scheduler beside the leading allocator places pods, including pods without claims.
	if health := p.waitForHealth(ctx); !health.Usable {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, waits(health.Message))
	}
	served := p.served(pod)
	if len(pod.Spec.ResourceClaims) == 0 && len(served) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	claims, err := p.claimsOf(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	var versions []string
	for _, claim := range claims {
		versions = append(versions, claim.ResourceVersion)
	}
	answer, err := p.client.PreFilter(ctx, pod, served, versions, censusOf(infos), p.supposition)
	if err != nil {
		return nil, p.outcome(ctx, pod, err)
	}
	if answer.Verdict == sidecar.Skip {
		if len(claims) > 0 || len(served) > 0 {
			return nil, p.again(ctx, pod, "the allocator does not see yet that the pod requests devices")
		}
		return nil, fwk.NewStatus(fwk.Skip)
	}
	attempt := newCycle(answer)
	attempt.served = served
	state.Write(stateKey, attempt)
	return attempt.preFilterResult(infos)
}

// waitForHealth returns the state of the allocator. While another replica leads or may lead, it waits up to p.standby for a
// change: each pod that PreFilter rejects gets an event, although the scheduler beside the leader may place the pod meanwhile.
func (p *Plugin) waitForHealth(ctx context.Context) sidecar.Health {
	health := p.follower.Health()
	for end := time.Now().Add(p.standby); !health.Usable && health.Quiet && time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, min(p.standby, stateInterval)/20)
		health = p.follower.Health()
	}
	return health
}

func newCycle(answer *sidecar.Answer) *cycle {
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

// preFilterResult translates the allocator's verdict into the result of PreFilter.
func (c *cycle) preFilterResult(infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	result := &fwk.PreFilterResult{}
	if !c.fitsEverywhere() {
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
			// Preemption may help, and needs the state of the other plugins. After Unschedulable, the scheduler still calls their PreFilter.
			return nil, fwk.NewStatus(fwk.Unschedulable, message)
		}
	}
	return result, nil
}

// othersFit reports whether the nodes that the answer does not name fit.
func (c *cycle) othersFit() bool { return c.answer.Rest != nil && c.answer.Rest.Fit }

// fitsEverywhere reports whether the pod fits on all nodes, so that PreFilter need not list them.
func (c *cycle) fitsEverywhere() bool { return c.othersFit() && len(c.reason) == 0 }

// fitting returns the names of the nodes that fit.
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

// reasonFor returns why a node does not fit.
func (c *cycle) reasonFor(node string) string {
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
	return "no node has the devices that the pod requests"
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
	if attempt, pod := cycleOf(state), info.GetPod(); attempt != nil && hasClaims(pod) {
		attempt.removed, attempt.added = moveBetween(pod, attempt.removed, attempt.added)
	}
	return nil
}

// RemovePod records a pod that the scheduler assumes to be deleted.
func (p *Plugin) RemovePod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if attempt, pod := cycleOf(state), info.GetPod(); attempt != nil && hasClaims(pod) {
		attempt.added, attempt.removed = moveBetween(pod, attempt.added, attempt.removed)
	}
	return nil
}

// moveBetween removes a pod from one list. If the list does not contain the pod, it appends the pod to the other list.
func moveBetween(pod *v1.Pod, from, to []*v1.Pod) (newFrom, newTo []*v1.Pod) {
	isSame := func(other *v1.Pod) bool { return other.UID == pod.UID }
	if slices.ContainsFunc(from, isSame) {
		return slices.DeleteFunc(from, isSame), to
	}
	return from, append(to, pod)
}

// Filter looks up the node in the answer that PreFilter got. It calls the allocator only if the scheduler assumes that pods are added
// (nominated pods) or removed (victims of preemption).
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	attempt := cycleOf(state)
	if attempt == nil || attempt.ignoreDevices {
		return nil
	}
	node := info.Node().Name
	if len(attempt.added) > 0 || len(attempt.removed) > 0 {
		return p.filterWithPods(ctx, attempt, node)
	}
	if attempt.fits(node) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, attempt.reasonFor(node))
}

// filterWithPods asks the allocator whether the pod fits on a node with the added pods and without the removed pods.
func (p *Plugin) filterWithPods(ctx context.Context, attempt *cycle, node string) *fwk.Status {
	if attempt.answer.Token == "" { // the verdict is neither fits nor full
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, messageOf(attempt.answer))
	}
	// Preemption may filter a hundred nodes within one deadline. So after a failed call there are no calls for the other nodes.
	if attempt.held.broken.Load() {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notChecked(p.follower.Health().Message))
	}
	fit, err := p.client.Filter(ctx, attempt.answer.Token, node, attempt.added, attempt.removed)
	if err == nil && fit.Fits {
		return nil
	}
	if err == nil {
		return fwk.NewStatus(fwk.Unschedulable, sidecar.Shorten(fit.Message))
	}
	if ctx.Err() == nil && !sidecar.Outdated(err) {
		attempt.held.broken.Store(true)
	}
	if sidecar.MayRecover(err) {
		p.follower.Missed(err)
	}
	// An error status would end the attempt for all nodes.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notChecked(err.Error()))
}

// notChecked returns why one node was not checked. The text begins with "node(s)", because the scheduler writes a number before it.
func notChecked(why string) string {
	return "node(s) not checked: " + waits(why)
}

// PreScore skips Score for pods that do not need the allocator.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns the allocator's score of the node.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	attempt := cycleOf(state)
	if attempt == nil {
		return 0, nil
	}
	return attempt.score(info.Node().Name), nil
}

// ScoreExtensions returns the plugin itself, for NormalizeScore.
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
