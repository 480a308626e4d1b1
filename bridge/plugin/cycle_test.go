package plugin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// fits is an answer with n1 at 40, n2 at 80, and a reason for n3.
var fits = sidecar.Answer{
	Verdict: sidecar.Fits, Token: "t",
	Nodes:   []sidecar.Node{{Name: "n1", Score: 40}, {Name: "n2", Score: 80}},
	Reasons: []sidecar.Reason{{Message: "no free GPU", Nodes: []string{"n3"}, Count: 1}},
}

var full = sidecar.Answer{Verdict: sidecar.Full, Token: "t", Message: "all GPUs are in use"}

func TestTheVerdictDecidesTheStatusOfPreFilter(t *testing.T) {
	for name, row := range map[string]struct {
		answer  sidecar.Answer
		code    fwk.Code
		message string
		nodes   []string
	}{
		"fits":                     {fits, fwk.Success, "", []string{"n1", "n2"}},
		"fits nowhere":             {sidecar.Answer{Verdict: sidecar.Fits, Message: "none"}, fwk.Unschedulable, "none", nil},
		"full":                     {full, fwk.Unschedulable, "all GPUs are in use", nil},
		"never":                    {sidecar.Answer{Verdict: sidecar.Never, Message: "no such GPU"}, fwk.UnschedulableAndUnresolvable, "no such GPU", nil},
		"waiting":                  {sidecar.Answer{Verdict: sidecar.Waiting, Message: "no class"}, fwk.UnschedulableAndUnresolvable, "no class", nil},
		"skip":                     {sidecar.Answer{Verdict: sidecar.Skip}, fwk.Unschedulable, "does not see yet that the pod requests devices", nil},
		"undecided":                {sidecar.Answer{Verdict: sidecar.Undecided, Message: "too hard"}, fwk.Error, "too hard", nil},
		"undecided but for a node": {sidecar.Answer{Verdict: sidecar.Undecided, Token: "t", Nodes: fits.Nodes[:1]}, fwk.Success, "", []string{"n1"}},
		"full without words":       {sidecar.Answer{Verdict: sidecar.Full}, fwk.Unschedulable, "no node has the devices", nil},
		"full with a reason":       {sidecar.Answer{Verdict: sidecar.Full, Reasons: fits.Reasons}, fwk.Unschedulable, "no free GPU", nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			w.addClaims(t, claim("gpu", "gpus"))
			server.On("prefilter", stub.JSON(row.answer))
			result, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), nil)
			if status.Code() != row.code || !strings.Contains(status.Message(), row.message) {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if row.nodes != nil && !result.NodeNames.Equal(sets.New(row.nodes...)) {
				t.Errorf("narrowed to %v", result.NodeNames)
			}
		})
	}
}

func TestTheErrorOfACallDecidesTheStatusOfPreFilter(t *testing.T) {
	for name, row := range map[string]struct {
		answer   stub.Answer
		code     fwk.Code
		message  string
		usable   bool
		requeued bool
	}{
		"hangs up":              {stub.Hangup, fwk.UnschedulableAndUnresolvable, "waits for the drawbridge allocator: it cannot be reached", false, false},
		"not leading":           {stub.Refusal(503, "not leading", "wait"), fwk.UnschedulableAndUnresolvable, "waits for the drawbridge allocator: not leading: wait", false, false},
		"the devices are taken": {stub.Refusal(409, "taken", ""), fwk.Unschedulable, "the pod is scheduled again: taken", true, true},
		"the token is unknown":  {stub.Refusal(410, "unknown token", ""), fwk.Unschedulable, "the pod is scheduled again: unknown token", true, true},
		"an internal error":     {stub.Refusal(500, "a bug", ""), fwk.Error, "the drawbridge allocator: a bug", true, false},
		"nonsense":              {stub.Text("?"), fwk.Error, "cannot be used", true, false},
		"too long an answer":    {stub.Flood, fwk.Error, "longer than", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			w.woken()
			w.addClaims(t, claim("gpu", "gpus"))
			server.On("prefilter", row.answer)
			state := &cycleState{}
			_, status := plugin.PreFilter(t.Context(), state, pod("p", "gpu"), nil)
			if status.Code() != row.code || !strings.Contains(status.Message(), row.message) {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if usable := plugin.follower.Health().Usable; usable != row.usable {
				t.Errorf("the allocator is usable: %v", usable)
			}
			if requeued := slices.Equal(w.woken(), []string{"p"}); requeued != row.requeued {
				t.Errorf("requeued: %v", requeued)
			}
			if cycleOf(state) != nil {
				t.Error("a failed call left a state")
			}
		})
	}
}

func TestALateAnswerFailsOnlyItsPod(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.Never)
	plugin.client = sidecar.New(sidecar.Place{Socket: server.Socket}, sidecar.Timeouts{Call: 200_000_000})
	defer plugin.client.Close()
	_, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), nil)
	if status.Code() != fwk.Error || !strings.Contains(status.Message(), "did not answer prefilter in time") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	if !plugin.follower.Health().Usable {
		t.Error("after one late answer the allocator counts as unusable")
	}
}

func TestWithoutTheAllocatorNoPodIsScheduledAndNoCallIsMade(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	w.addClaims(t, claim("gpu", "gpus"))
	plugin.follower.Missed(fmt.Errorf("it cannot be reached: gone"))
	for _, waiting := range []*v1.Pod{pod("with", "gpu"), pod("without")} {
		_, status := plugin.PreFilter(t.Context(), &cycleState{}, waiting, nil)
		if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "gone") {
			t.Errorf("%s: got %v %q", waiting.Name, status.Code(), status.Message())
		}
	}
	if len(server.Asked("prefilter")) != 0 {
		t.Error("the server was called")
	}
}

func TestTheAllocatorIsCalledOnlyForPodsThatNeedIt(t *testing.T) {
	gpus := &resourcev1.DeviceClass{}
	for name, row := range map[string]struct {
		pod   *v1.Pod
		asked bool
	}{
		"a claim":                        {pod("p", "gpu"), true},
		"nothing":                        {pod("p"), false},
		"cpu":                            {withRequest(pod("p"), "cpu", "1"), false},
		"a device plugin's resource":     {withRequest(pod("p"), "vendor.example/nic", "1"), false},
		"a class's resource":             {withRequest(pod("p"), "vendor.example/gpu", "1"), true},
		"none of a class's resource":     {withRequest(pod("p"), "vendor.example/gpu", "0"), false},
		"a class's resource after other": {withRequest(withRequest(pod("p"), "cpu", "1"), "vendor.example/gpu", "2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			w.classes = map[v1.ResourceName]*resourcev1.DeviceClass{"vendor.example/gpu": gpus}
			w.addClaims(t, claim("gpu", "gpus"))
			server.On("prefilter", stub.JSON(fits))
			_, status := plugin.PreFilter(t.Context(), &cycleState{}, row.pod, nil)
			if asked := len(server.Asked("prefilter")) == 1; asked != row.asked || status.IsSkip() == row.asked {
				t.Errorf("asked: %v, status %v", asked, status.Code())
			}
		})
	}
}

func TestASkipIsFollowedOnlyIfTheSchedulerKnowsOfNoDevicesEither(t *testing.T) {
	const name v1.ResourceName = "vendor.example/gpu"
	withoutClaim := podWithTemplate("p", nil) // the template requests nothing
	withoutClaim.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	for title, row := range map[string]struct {
		pod   *v1.Pod
		waits bool
	}{
		"by name":                       {withRequest(pod("p"), name, "1"), true},
		"a claim":                       {pod("p", "gpu"), true},
		"a template that requests none": {withoutClaim, false},
	} {
		t.Run(title, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			w.woken()
			w.classes = map[v1.ResourceName]*resourcev1.DeviceClass{name: {}}
			w.addClaims(t, claim("gpu", "gpus"))
			server.On("prefilter", stub.JSON(sidecar.Answer{Verdict: sidecar.Skip}))
			_, status := plugin.PreFilter(t.Context(), &cycleState{}, row.pod, nil)
			if status.IsSkip() == row.waits || status.IsRejected() != row.waits {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if requeued := len(w.woken()) == 1; requeued != row.waits {
				t.Errorf("requeued: %v", requeued)
			}
		})
	}
}

func TestTheQuestionNamesTheResourcesThatAClassServes(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	w.classes = map[v1.ResourceName]*resourcev1.DeviceClass{"vendor.example/gpu": {}, "vendor.example/fpga": {}}
	server.On("prefilter", stub.JSON(full))
	me := withRequest(withRequest(pod("p"), "vendor.example/nic", "1"), "vendor.example/gpu", "1")
	plugin.PreFilter(t.Context(), &cycleState{}, me, nil)
	if served := fmt.Sprint(server.Asked("prefilter")[0].Body["served"]); served != "[vendor.example/gpu]" {
		t.Errorf("served: %s", served)
	}
}

func TestTheQuestionHasTheVersionsOfTheClaims(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	seen := claim("gpu")
	seen.ResourceVersion = "42"
	w.addClaims(t, seen)
	server.On("prefilter", stub.JSON(full))
	plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), nil)
	if versions := fmt.Sprint(server.Asked("prefilter")[0].Body["claimVersions"]); versions != "[42]" {
		t.Errorf("versions: %s", versions)
	}
}

func TestPreFilterSkipsARunningPod(t *testing.T) {
	plugin, _, server := newWorld(t, "")
	running := pod("p", "gpu")
	running.Spec.NodeName = "n1"
	if _, status := plugin.PreFilter(t.Context(), &cycleState{}, running, nil); !status.IsSkip() {
		t.Errorf("got %v", status.Code())
	}
	if len(server.Asked("prefilter")) != 0 {
		t.Error("the allocator was asked about the pod")
	}
}

func TestAProfileWithDynamicResourcesSchedulesNothing(t *testing.T) {
	plugin, w, _ := newWorld(t, "")
	w.enabled = []string{"NodeResourcesFit", "DynamicResources", Name}
	_, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), nil)
	if !status.IsRejected() || !strings.Contains(status.Message(), "disable DynamicResources") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
}

func TestAProfileThatBindsBeforeTheClaimsAreWrittenSchedulesNothing(t *testing.T) {
	for _, binders := range [][]string{nil, {"DefaultBinder", Name}} {
		plugin, w, _ := newWorld(t, "")
		w.binders = binders
		_, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), nil)
		if !status.IsRejected() || !strings.Contains(status.Message(), "name Drawbridge under plugins.bind") {
			t.Errorf("got %v %q", status.Code(), status.Message())
		}
	}
}

// stateAfterPreFilter returns the state of an attempt after PreFilter got an answer.
func stateAfterPreFilter(t *testing.T, plugin *Plugin, w *world, server *stub.Server, answer sidecar.Answer) *cycleState {
	t.Helper()
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.JSON(answer))
	state := &cycleState{}
	if _, status := plugin.PreFilter(t.Context(), state, pod("p", "gpu"), nil); status.IsError() {
		t.Fatal(status.AsError())
	}
	return state
}

func TestFilterUsesTheAnswerOfPreFilter(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	for name, message := range map[string]string{"n1": "", "n2": "", "n3": "no free GPU", "n4": "no free GPU"} {
		status := plugin.Filter(t.Context(), state, pod("p", "gpu"), node(name))
		if status.Message() != message || status.IsSuccess() != (message == "") {
			t.Errorf("%s: got %v %q", name, status.Code(), status.Message())
		}
	}
	if len(server.Asked("filter")) != 0 {
		t.Error("the allocator was asked again")
	}
	if status := plugin.Filter(t.Context(), &cycleState{}, pod("p"), node("n9")); !status.IsSuccess() {
		t.Errorf("a pod that does not need the allocator: %v", status.Message())
	}
}

func TestFilterSendsAddedAndRemovedPods(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, full)
	server.On("filter", stub.JSON(sidecar.Fit{Fits: true}))
	ctx, me, victim, nominated := t.Context(), pod("p", "gpu"), pod("v", "c1"), pod("n", "c2")

	supposed := state.Clone()
	plugin.RemovePod(ctx, supposed, me, podInfo{pod: victim}, node("n1"))
	plugin.AddPod(ctx, supposed, me, podInfo{pod: nominated}, node("n1"))
	plugin.AddPod(ctx, supposed, me, podInfo{pod: pod("plain")}, node("n1"))
	if status := plugin.Filter(ctx, supposed, me, node("n1")); !status.IsSuccess() {
		t.Errorf("got %q", status.Message())
	}
	asked := server.Asked("filter")[0].Body
	if asked["token"] != "t" || asked["node"] != "n1" || names(asked["add"]) != "n" || names(asked["remove"]) != "v" {
		t.Errorf("asked %v", asked)
	}
	if status := plugin.Filter(ctx, state, me, node("n1")); status.IsSuccess() {
		t.Error("a change of a clone affects the original state")
	}
	// A pod that is removed and added again changes nothing.
	plugin.AddPod(ctx, supposed, me, podInfo{pod: victim}, node("n1"))
	plugin.RemovePod(ctx, supposed, me, podInfo{pod: nominated}, node("n1"))
	if status := plugin.Filter(ctx, supposed, me, node("n1")); status.Message() != "all GPUs are in use" {
		t.Errorf("got %q", status.Message())
	}
	if calls := len(server.Asked("filter")); calls != 1 {
		t.Errorf("asked %d times", calls)
	}
}

func names(pods any) string {
	var podNames []string
	for _, object := range pods.([]any) {
		podNames = append(podNames, object.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return strings.Join(podNames, " ")
}

func TestFilterMakesNoMoreCallsAfterTheAllocatorHasFailed(t *testing.T) {
	for name, row := range map[string]struct {
		answer stub.Answer
		calls  int
	}{
		"does not fit":         {stub.JSON(sidecar.Fit{Message: "still not"}), 3},
		"hangs up":             {stub.Hangup, 2}, // one call, sent twice
		"an internal error":    {stub.Refusal(500, "a bug", ""), 1},
		"the token is unknown": {stub.Refusal(410, "unknown token", ""), 3},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			state := stateAfterPreFilter(t, plugin, w, server, full)
			server.On("filter", row.answer)
			me := pod("p", "gpu")
			for _, name := range []string{"n1", "n2", "n3"} {
				supposed := state.Clone()
				plugin.RemovePod(t.Context(), supposed, me, podInfo{pod: pod("v", "c1")}, node(name))
				if status := plugin.Filter(t.Context(), supposed, me, node(name)); !status.IsRejected() {
					t.Errorf("%s: got %v", name, status.Code())
				}
			}
			if calls := len(server.Asked("filter")); calls != row.calls {
				t.Errorf("asked %d times", calls)
			}
		})
	}
}

func TestFilterMakesNoCallWithoutAToken(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, sidecar.Answer{Verdict: sidecar.Full, Message: "in use"})
	plugin.RemovePod(t.Context(), state, pod("p", "gpu"), podInfo{pod: pod("v", "c1")}, node("n1"))
	status := plugin.Filter(t.Context(), state, pod("p", "gpu"), node("n1"))
	if !status.IsRejected() || len(server.Asked("filter")) != 0 {
		t.Errorf("got %v after %d calls", status.Code(), len(server.Asked("filter")))
	}
}

func TestNormalizeScoreGivesTheBestNodeTheMaximum(t *testing.T) {
	for name, row := range map[string]struct{ scores, wanted []int64 }{
		"stretched":           {[]int64{40, 80, 0}, []int64{50, 100, 0}},
		"all nodes are equal": {[]int64{7, 7}, []int64{100, 100}},
		"all zero":            {[]int64{0, 0}, []int64{0, 0}},
		"none":                {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var list fwk.NodeScoreList
			for _, score := range row.scores {
				list = append(list, fwk.NodeScore{Score: score})
			}
			(&Plugin{}).NormalizeScore(t.Context(), nil, nil, list)
			for index, wanted := range row.wanted {
				if list[index].Score != wanted {
					t.Errorf("got %v", list)
				}
			}
		})
	}
}

func TestScoresComeFromTheAnswer(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	if status := plugin.PreScore(t.Context(), state, pod("p", "gpu"), nil); !status.IsSuccess() {
		t.Errorf("got %v", status.Code())
	}
	for name, wanted := range map[string]int64{"n1": 40, "n2": 80, "n9": 0} {
		if score, status := plugin.Score(t.Context(), state, pod("p", "gpu"), node(name)); score != wanted || !status.IsSuccess() {
			t.Errorf("%s: got %d", name, score)
		}
	}
	if status := plugin.PreScore(t.Context(), &cycleState{}, pod("p"), nil); !status.IsSkip() {
		t.Errorf("a pod that does not need the allocator is scored: %v", status.Code())
	}
}

func TestPodsWithClaimsGetNoSignature(t *testing.T) {
	if _, status := (&Plugin{}).SignPod(t.Context(), pod("p", "gpu")); !status.IsRejected() {
		t.Error("a pod with claims has a signature")
	}
	if _, status := (&Plugin{}).SignPod(t.Context(), pod("p")); !status.IsSuccess() {
		t.Error("a pod without claims has none")
	}
}

func TestConcurrentAttemptsDoNotAffectEachOther(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.JSON(fits))
	server.On("filter", stub.JSON(sidecar.Fit{Fits: true}))
	server.On("unreserve", stub.JSON(struct{}{}))
	server.On("commit", stub.JSON(sidecar.Commit{Committed: true}))
	server.On("reserve", func(response http.ResponseWriter, request *http.Request) {
		stub.JSON(sidecar.Reservation{ID: "r"})(response, request)
	})
	var group sync.WaitGroup
	for index := range 16 {
		group.Go(func() {
			me := pod(fmt.Sprint("p", index), "gpu")
			w.addPods(t, me)
			plugin.PreEnqueue(t.Context(), me)
			state := &cycleState{}
			if _, status := plugin.PreFilter(t.Context(), state, me, nil); !status.IsSuccess() {
				t.Errorf("PreFilter: %v", status.Message())
			}
			finishAttempt(t.Context(), t, plugin, state, me)
			plugin.wake(w.logger(), nil, true)
		})
	}
	group.Wait()
}

func finishAttempt(ctx context.Context, t *testing.T, plugin *Plugin, state fwk.CycleState, me *v1.Pod) {
	t.Helper()
	parallelizer{}.Until(ctx, 8, func(int) {
		supposed := state.Clone()
		plugin.AddPod(ctx, supposed, me, podInfo{pod: pod("n", "c")}, node("n1"))
		if status := plugin.Filter(ctx, supposed, me, node("n1")); !status.IsSuccess() {
			t.Errorf("Filter: %v", status.Message())
		}
	}, "test")
	if status := plugin.Reserve(ctx, state, me, "n1"); !status.IsSuccess() {
		t.Errorf("Reserve: %v", status.Message())
	}
	if status := plugin.Bind(ctx, state, me, "n1"); !status.IsSkip() {
		t.Errorf("Bind: %v", status.Message())
	}
	plugin.Unreserve(ctx, state, me, "n1")
}
