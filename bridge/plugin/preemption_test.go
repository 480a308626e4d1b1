package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

// addLowPriorityPods adds three nodes with pods of lower priority; something other than devices keeps the pod off n2.
func addLowPriorityPods(w *world) {
	for _, name := range []string{"n1", "n2", "n3"} {
		w.nodes = append(w.nodes, node(name, withPriority(pod("low-"+name, "c"), 0)))
	}
	w.others = func(_ *v1.Pod, name string) *fwk.Status {
		if name == "n2" {
			return fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu")
		}
		return nil
	}
}

func TestPostFilterMakesRoomOnNodesWhereOnlyDevicesAreMissing(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	addLowPriorityPods(w)
	state := stateAfterPreFilter(t, plugin, w, server, full)
	victims := []sidecar.Victim{{Namespace: "team", Name: "low-n3", UID: "u"}}
	server.On("postfilter", stub.JSON(sidecar.Preemption{NominatedNode: "n3", Victims: victims}))
	result, status := plugin.PostFilter(t.Context(), state, withPriority(pod("p", "gpu"), 10), nil)
	if !status.IsSuccess() || result.NominatedNodeName != "n3" || result.Mode() != fwk.ModeOverride {
		t.Errorf("got %+v, %v", result, status.Message())
	}
	asked := server.Asked("postfilter")
	if len(asked) != 1 || fmt.Sprint(asked[0].Body["nodes"]) != "[n1 n3]" {
		t.Errorf("asked %v", asked)
	}
	if status := plugin.Filter(t.Context(), state, pod("p", "gpu"), node("n1")); status.IsSuccess() {
		t.Error("the attempt itself ignores devices now")
	}
}

func TestAPodWithAClaimForAnExtendedResourceMayBeAVictim(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	low := withPriority(pod("low"), 0)
	low.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
	w.nodes = append(w.nodes, node("n1", low))
	w.others = func(*v1.Pod, string) *fwk.Status { return nil }
	state := stateAfterPreFilter(t, plugin, w, server, full)
	server.On("postfilter", stub.JSON(sidecar.Preemption{NominatedNode: "n1"}))
	server.On("filter", stub.JSON(sidecar.Fit{Fits: true}))
	if _, status := plugin.PostFilter(t.Context(), state, withPriority(pod("p", "gpu"), 10), nil); !status.IsSuccess() {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	plugin.RemovePod(t.Context(), state, pod("p", "gpu"), podInfo{pod: low}, node("n1"))
	plugin.Filter(t.Context(), state, pod("p", "gpu"), node("n1"))
	if asked := server.Asked("filter"); len(asked) != 1 || len(asked[0].Body["remove"].([]any)) != 1 {
		t.Errorf("asked %v", asked)
	}
}

func TestANodeThatHasTheDevicesNeedsNoVictims(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	addLowPriorityPods(w)
	state := stateAfterPreFilter(t, plugin, w, server, fits) // n1 and n2 have the devices, so something else is missing there
	server.On("postfilter", stub.JSON(sidecar.Preemption{Message: "no pod may be evicted"}))
	_, status := plugin.PostFilter(t.Context(), state, withPriority(pod("p", "gpu"), 10), nil)
	if status.Code() != fwk.Unschedulable || status.Message() != "no pod may be evicted" {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	if nodes := fmt.Sprint(server.Asked("postfilter")[0].Body["nodes"]); nodes != "[n3]" {
		t.Errorf("asked about %s", nodes)
	}
}

func TestPostFilterCallsTheAllocatorOnlyIfVictimsMayHelp(t *testing.T) {
	never := v1.PreemptNever
	neverPreempts := withPriority(pod("p", "gpu"), 10)
	neverPreempts.Spec.PreemptionPolicy = &never
	important := withPriority(pod("p", "gpu"), 10)
	for name, row := range map[string]struct {
		answer sidecar.Answer
		pod    *v1.Pod
		nodes  []fwk.NodeInfo
	}{
		"no device would ever do":             {sidecar.Answer{Verdict: sidecar.Never}, important, nil},
		"something does not exist":            {sidecar.Answer{Verdict: sidecar.Waiting}, important, nil},
		"the pod may not preempt":             {full, neverPreempts, nil},
		"no pod has less priority":            {full, withPriority(pod("p", "gpu"), 0), nil},
		"a lesser pod has no claims":          {full, important, []fwk.NodeInfo{node("n1", withPriority(pod("low"), 0))}},
		"something else is missing, too":      {full, important, []fwk.NodeInfo{node("n2", withPriority(pod("low", "c"), 0))}},
		"the pod does not need the allocator": {sidecar.Answer{Verdict: sidecar.Skip}, important, nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			addLowPriorityPods(w)
			if row.nodes != nil {
				w.nodes = row.nodes
			}
			state := stateAfterPreFilter(t, plugin, w, server, row.answer)
			_, status := plugin.PostFilter(t.Context(), state, row.pod, nil)
			if status.Code() != fwk.Unschedulable || len(server.Asked("postfilter")) > 0 {
				t.Errorf("got %v, asked %v", status.Code(), server.Asked("postfilter"))
			}
		})
	}
}

func TestPostFilterCallsTheAllocatorForAllocatedClaimsEvenIfVictimsCannotHelp(t *testing.T) {
	never := v1.PreemptNever
	neverPreempts := withPriority(pod("p", "gpu"), 10)
	neverPreempts.Spec.PreemptionPolicy = &never
	nowhere := sidecar.Answer{Verdict: sidecar.Never, Message: "0 of 2 nodes can serve the claims: 2 node(s) didn't match claim team/gpu, which is allocated on another node"}
	for name, row := range map[string]struct {
		answer sidecar.Answer
		pod    *v1.Pod
	}{
		"the pod may not preempt":                   {full, neverPreempts},
		"no pod has less priority":                  {full, withPriority(pod("p", "gpu"), 0)},
		"the node of the allocation does not exist": {nowhere, neverPreempts},
		"the pod fits where it cannot run":          {fits, neverPreempts},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			addLowPriorityPods(w)
			state := stateAfterPreFilter(t, plugin, w, server, row.answer)
			if err := w.factory.Resource().V1().ResourceClaims().Informer().GetIndexer().Update(allocated(claim("gpu"))); err != nil {
				t.Fatal(err)
			}
			server.On("postfilter", stub.JSON(sidecar.Preemption{Message: "it is taken back"}))
			_, status := plugin.PostFilter(t.Context(), state, row.pod, nil)
			if status.Code() != fwk.Unschedulable || status.Message() != "it is taken back" {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if len(server.Asked("postfilter")) != 1 {
				t.Errorf("asked %v", server.Asked("postfilter"))
			}
		})
	}
}

func TestNoOtherPluginPreemptsIfTheAllocatorGaveNoAnswer(t *testing.T) {
	for name, answer := range map[string]stub.Answer{
		"hangs up": stub.Hangup, "an internal error": stub.Refusal(500, "a bug", ""), "nonsense": stub.Text("?"),
		"not leading": stub.Refusal(503, "not leading", ""),
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			addLowPriorityPods(w)
			state := stateAfterPreFilter(t, plugin, w, server, full)
			server.On("postfilter", answer)
			result, status := plugin.PostFilter(t.Context(), state, withPriority(pod("p", "gpu"), 10), nil)
			if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() == "" {
				t.Errorf("got %v, %v %q", result, status.Code(), status.Message())
			}
			if calls := len(server.Asked("postfilter")); calls != 1 {
				t.Errorf("asked %d times", calls)
			}
			if usable := plugin.follower.Health().Usable; usable != slices.Contains([]string{"an internal error", "nonsense"}, name) {
				t.Errorf("the allocator is usable: %v", usable)
			}
		})
	}
}

func TestPostFilterKeepsTheNominationWhileTheAllocatorIsAway(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	addLowPriorityPods(w)
	state := stateAfterPreFilter(t, plugin, w, server, full)
	plugin.follower.Missed(errors.New("it cannot be reached: gone"))
	result, status := plugin.PostFilter(t.Context(), state, withPriority(pod("p", "gpu"), 10), nil)
	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || len(server.Asked("postfilter")) > 0 {
		t.Errorf("got %v, %v, asked %v", result, status.Code(), server.Asked("postfilter"))
	}
}

// gang is a group of waiting pods as the scheduler passes it.
type gang struct {
	fwk.PodGroupInfo
	pods []*v1.Pod
}

func (g gang) GetUnscheduledPods() []*v1.Pod { return g.pods }

func (g gang) GetAllUnscheduledPods() []*v1.Pod { return g.pods }
func (g gang) GetNamespace() string             { return "team" }
func (g gang) GetName() string                  { return "gang" }

type assignment struct {
	fwk.ProposedAssignment
	pod  *v1.Pod
	node string
}

func (a assignment) GetPod() *v1.Pod     { return a.pod }
func (a assignment) GetNodeName() string { return a.node }

func TestRoomIsMadeForAGroupOnTheNodesOfTheSimulatedPlacement(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	addLowPriorityPods(w)
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.JSON(fits))
	member := withPriority(pod("p", "gpu"), 10)
	schedule := func(ctx context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
		plugin.PreFilter(ctx, &cycleState{}, member, nil)
		return &fwk.PodGroupAssignments{ProposedAssignments: []fwk.ProposedAssignment{assignment{pod: member, node: "n3"}}}, nil
	}
	nominations := []sidecar.Nomination{{Namespace: "team", Name: "p", Node: "n3"}}
	server.On("postfilter", stub.JSON(sidecar.Preemption{Nominations: nominations}))
	result, status := plugin.PodGroupPostFilter(t.Context(), nil, gang{pods: []*v1.Pod{member}}, schedule)
	if !status.IsSuccess() || result.NominatingInfos[types.NamespacedName{Namespace: "team", Name: "p"}].NominatedNodeName != "n3" {
		t.Fatalf("got %+v, %v", result, status.Message())
	}
	plugin.PreFilter(t.Context(), &cycleState{}, member, nil)
	asked := server.Asked("prefilter")
	if asked[0].Body["suppose"] == nil || asked[1].Body["suppose"] != nil {
		t.Errorf("asked %v", asked)
	}
	group := server.Asked("postfilter")[0].Body["group"].([]any)
	if len(group) != 1 || group[0].(map[string]any)["node"] != "n3" {
		t.Errorf("asked for %v", group)
	}
}

func TestPodsBelowTheLowestSufficientPriorityAreSupposedToBeGone(t *testing.T) {
	for lowest, want := range map[int32]string{1: "n1", 3: "n3", 5: "n5", 7: "n7"} {
		plugin, w, server := newWorld(t, "")
		for _, priority := range []int32{7, 3, 1, 5, 3, 10} {
			w.nodes = append(w.nodes, node("", withPriority(pod("low", "c"), priority)))
		}
		schedule := func(context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
			below := *plugin.supposition.Below
			if below <= int64(lowest) {
				return nil, fwk.NewStatus(fwk.Unschedulable)
			}
			placement := assignment{pod: pod("p"), node: fmt.Sprintf("n%d", below-1)}
			return &fwk.PodGroupAssignments{ProposedAssignments: []fwk.ProposedAssignment{placement}}, nil
		}
		server.On("postfilter", stub.JSON(sidecar.Preemption{}))
		plugin.PodGroupPostFilter(t.Context(), nil, gang{pods: []*v1.Pod{withPriority(pod("p", "gpu"), 10)}}, schedule)
		member := server.Asked("postfilter")[0].Body["group"].([]any)[0].(map[string]any)
		if member["node"] != want || plugin.supposition.Below != nil {
			t.Errorf("lowest sufficient priority %d: %v", lowest, member["node"])
		}
	}
}

func TestNoRoomIsMadeForAGroupThatWouldNotFitOrMayNotPreempt(t *testing.T) {
	never := v1.PreemptNever
	neverPreempts := withPriority(pod("p", "gpu"), 10)
	neverPreempts.Spec.PreemptionPolicy = &never
	for name, row := range map[string]struct {
		pod     *v1.Pod
		asked   bool // the scheduler is asked to place the group
		answers *fwk.Status
	}{
		"something else is missing":   {withPriority(pod("p", "gpu"), 10), true, fwk.NewStatus(fwk.Unschedulable)},
		"the pod may not preempt":     {neverPreempts, false, nil},
		"no pod has less priority":    {withPriority(pod("p", "gpu"), 0), false, nil},
		"no member asks for a device": {withPriority(pod("p"), 10), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			addLowPriorityPods(w)
			asked := false
			schedule := func(context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
				asked = true
				return nil, row.answers
			}
			_, status := plugin.PodGroupPostFilter(t.Context(), nil, gang{pods: []*v1.Pod{row.pod}}, schedule)
			if status.Code() != fwk.Unschedulable || asked != row.asked || len(server.Asked("postfilter")) > 0 {
				t.Errorf("got %v, asked %v", status.Code(), asked)
			}
		})
	}
}
