package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

func TestReserveCommitAndUnreserveUseTheSameReservation(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1", ExpiresSeconds: 30}))
	server.On("commit", stub.JSON(sidecar.Commit{Committed: true}))
	server.On("unreserve", stub.JSON(struct{}{}))
	ctx, me := t.Context(), pod("p", "gpu")
	if status := plugin.Reserve(ctx, state, me, "n2"); !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	if asked := server.Asked("reserve")[0].Body; asked["token"] != "t" || asked["node"] != "n2" {
		t.Errorf("reserve asked %v", asked)
	}
	if _, status := plugin.PreBindPreFlight(ctx, state, me, "n2"); !status.IsSkip() {
		t.Errorf("the scheduler would announce the node: %v", status.Code())
	}
	if status := plugin.PreBind(ctx, state, me, "n2"); !status.IsSuccess() || len(server.Asked("commit")) > 0 {
		t.Errorf("PreBind: %v %q", status.Code(), status.Message())
	}
	if status := plugin.Bind(ctx, state, me, "n2"); !status.IsSkip() {
		t.Fatal(status.Message())
	}
	if asked := server.Asked("commit")[0].Body; asked["reservation"] != "r1" {
		t.Errorf("commit asked %v", asked)
	}
	plugin.Unreserve(ctx, state, me, "n2")
	plugin.Unreserve(ctx, state, me, "n2") // the scheduler may call Unreserve twice
	asked := server.Asked("unreserve")
	if len(asked) != 1 || asked[0].Body["reservation"] != "r1" {
		t.Errorf("unreserve asked %v", asked)
	}
}

func TestAPodWithoutClaimsIsBoundWithoutACallToTheAllocator(t *testing.T) {
	plugin, _, server := newWorld(t, "")
	ctx, me, state := t.Context(), pod("p"), &cycleState{}
	if _, status := plugin.PreBindPreFlight(ctx, state, me, "n1"); !status.IsSkip() {
		t.Errorf("got %v", status.Code())
	}
	if status := plugin.Bind(ctx, state, me, "n1"); !status.IsSkip() {
		t.Errorf("got %v", status.Code())
	}
	for _, status := range []*fwk.Status{plugin.Reserve(ctx, state, me, "n1"), plugin.PreBind(ctx, state, me, "n1")} {
		if !status.IsSuccess() {
			t.Errorf("got %v", status.Message())
		}
	}
	plugin.Unreserve(ctx, state, me, "n1")
	for _, call := range []string{"reserve", "commit", "unreserve"} {
		if len(server.Asked(call)) > 0 {
			t.Errorf("%s was called", call)
		}
	}
}

func TestUnreserveReleasesAReservationWhoseAnswerWasLost(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	server.On("reserve", stub.Hangup)
	server.On("unreserve", stub.JSON(struct{}{}))
	me := pod("p", "gpu")
	// The attempt is cancelled; the reservation must be released all the same.
	ctx, cancel := context.WithCancel(t.Context())
	if status := plugin.Reserve(ctx, state, me, "n2"); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("got %v", status.Code())
	}
	cancel()
	plugin.Unreserve(ctx, state, me, "n2")
	asked := server.Asked("unreserve")
	if len(asked) != 1 || asked[0].Body["token"] != "t" || asked[0].Body["node"] != "n2" {
		t.Errorf("unreserve asked %v", asked)
	}
}

func TestAPodIsRequeuedIfItsReservationIsRefused(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	w.woken()
	server.On("reserve", stub.Refusal(409, "gpu-0 of n2 was taken meanwhile", ""))
	status := plugin.Reserve(t.Context(), state, pod("p", "gpu"), "n2")
	if status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "gpu-0 of n2 was taken") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	if !slices.Equal(w.woken(), []string{"p"}) {
		t.Error("the pod was not requeued")
	}
}

func TestUnreserveEndsEvenIfTheAllocatorIsGone(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1"}))
	me := pod("p", "gpu")
	plugin.Reserve(t.Context(), state, me, "n2")
	server.Stop()
	plugin.Unreserve(t.Context(), state, me, "n2")
	if attempt := cycleOf(state); attempt.held.attempted || attempt.held.reservation != "" {
		t.Error("the reservation would be released a second time")
	}
}

func TestBindFailsWithoutAReservation(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	if status := plugin.Bind(t.Context(), state, pod("p", "gpu"), "n2"); !status.IsError() {
		t.Errorf("got %v", status.Code())
	}
}

func TestTheAnswerToCommitDecidesTheStatusOfBind(t *testing.T) {
	yes, notYet := stub.JSON(sidecar.Commit{Committed: true}), stub.Status(202, sidecar.Commit{Message: "waits for the fabric"})
	for name, row := range map[string]struct {
		answer  stub.Answer
		code    fwk.Code
		message string
		calls   int
	}{
		"written":               {yes, fwk.Skip, "", 1},
		"ready after a while":   {stub.InTurn(notYet, notYet, yes), fwk.Skip, "", 3},
		"the answer was lost":   {stub.InTurn(stub.Hangup, yes), fwk.Skip, "", 2},
		"the allocator is gone": {stub.Hangup, fwk.UnschedulableAndUnresolvable, "waits for the drawbridge allocator", 2},
		"the lead is lost":      {stub.Refusal(503, "not leading", ""), fwk.UnschedulableAndUnresolvable, "not leading", 1},
		"lost while waiting":    {stub.InTurn(notYet, stub.Refusal(503, "not leading", "")), fwk.UnschedulableAndUnresolvable, "not leading", 2},
		"to be decided again":   {stub.Refusal(409, "the claim was deleted", ""), fwk.Unschedulable, "the claim was deleted", 1},
		"forbidden":             {stub.Refusal(403, "may not patch claims", "bind the role"), fwk.Error, "bind the role", 1},
		"nonsense":              {stub.Text("yes"), fwk.Error, "cannot be used", 1},
		"half an answer":        {stub.Text(`{"committed":tru`), fwk.Error, "cannot be used", 1},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			plugin.pause = 0
			state := stateAfterPreFilter(t, plugin, w, server, fits)
			server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1"}))
			server.On("commit", row.answer)
			plugin.Reserve(t.Context(), state, pod("p", "gpu"), "n2")
			status := plugin.Bind(t.Context(), state, pod("p", "gpu"), "n2")
			if status.Code() != row.code || !strings.Contains(status.Message(), row.message) {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if calls := len(server.Asked("commit")); calls != row.calls {
				t.Errorf("asked %d times", calls)
			}
		})
	}
}

func TestBindBindsTheVersionOfThePodThatTheAllocatorNames(t *testing.T) {
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("it changed"))
	for name, row := range map[string]struct {
		err     error
		code    fwk.Code
		message string
		woken   []string
	}{
		"bound":        {nil, fwk.Success, "", nil},
		"it changed":   {changed, fwk.Unschedulable, "the pod is scheduled again: the pod changed", []string{"p"}},
		"the API died": {errors.New("no route"), fwk.Error, "no route", nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			state := stateAfterPreFilter(t, plugin, w, server, fits)
			server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1"}))
			server.On("commit", stub.JSON(sidecar.Commit{Committed: true, ResourceVersion: "7"}))
			w.bindError = row.err
			me := pod("p", "gpu")
			plugin.Reserve(t.Context(), state, me, "n2")
			w.woken()
			status := plugin.Bind(t.Context(), state, me, "n2")
			if status.Code() != row.code || !strings.Contains(status.Message(), row.message) {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if woken := w.woken(); !slices.Equal(woken, row.woken) {
				t.Errorf("woken %v", woken)
			}
			if len(w.bindings) != 1 || w.bindings[0].ResourceVersion != "7" || w.bindings[0].UID != me.UID || w.bindings[0].Target.Name != "n2" {
				t.Errorf("bound %v", w.bindings)
			}
		})
	}
}

func TestPreBindFailsIfDevicesAreNotReadyWithinTheBindingTimeout(t *testing.T) {
	plugin, w, server := newWorld(t, `, "bindingTimeout": "1s"`)
	plugin.pause = 0
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1", Unready: true}))
	server.On("commit", stub.Status(202, sidecar.Commit{Message: "waits for the fabric"}))
	plugin.Reserve(t.Context(), state, pod("p", "gpu"), "n2")
	status := plugin.PreBind(t.Context(), state, pod("p", "gpu"), "n2")
	if status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "not ready to be bound within 1s") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
}

func TestBindFailsIfItsContextIsCancelled(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	plugin.pause = 0
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	ctx, cancel := context.WithCancelCause(t.Context())
	server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1"}))
	waits := stub.Status(202, sidecar.Commit{Message: "waits"})
	server.On("commit", waits)
	plugin.Reserve(ctx, state, pod("p", "gpu"), "n2")
	cancel(errors.New("the pod was preempted"))
	status := plugin.Bind(ctx, state, pod("p", "gpu"), "n2")
	if status.IsSkip() || status.IsSuccess() || !strings.Contains(status.Message(), "the pod was preempted") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
}

func TestPreBindWaitsForDevicesThatHaveToBeMadeReady(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	state := stateAfterPreFilter(t, plugin, w, server, fits)
	server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1", Unready: true}))
	server.On("commit", stub.JSON(sidecar.Commit{Committed: true}))
	ctx, me := t.Context(), pod("p", "gpu")
	plugin.Reserve(ctx, state, me, "n2")
	if _, status := plugin.PreBindPreFlight(ctx, state, me, "n2"); !status.IsSuccess() {
		t.Errorf("the node is not announced: %v", status.Code())
	}
	if status := plugin.PreBind(ctx, state, me, "n2"); !status.IsSuccess() {
		t.Fatal(status.Message())
	}
	if status := plugin.Bind(ctx, state, me, "n2"); !status.IsSkip() {
		t.Errorf("got %v", status.Code())
	}
	if calls := len(server.Asked("commit")); calls != 1 {
		t.Errorf("committed %d times", calls)
	}
}

// Each row is a pod that NodeResourcesFit let pass on n1 because a class serves its resource, or because a plugin offers it.
func TestBindRejectsAPodThatWouldRunWithoutItsDevice(t *testing.T) {
	const gpu, nic v1.ResourceName = "vendor.example/gpu", "vendor.example/nic"
	serves := map[v1.ResourceName]*resourcev1.DeviceClass{gpu: {}, nic: {}}
	for title, row := range map[string]struct {
		before, after map[v1.ResourceName]*resourcev1.DeviceClass // the classes in PreFilter, and in Bind
		offered       v1.ResourceList                             // by device plugins of n1
		written       []v1.ResourceName
		bound         bool
	}{
		"a claim for both":                       {serves, serves, nil, []v1.ResourceName{gpu, nic}, true},
		"no claim":                               {serves, serves, nil, nil, false},
		"a claim for one":                        {serves, serves, nil, []v1.ResourceName{gpu}, false},
		"a claim and a device plugin":            {serves, serves, v1.ResourceList{nic: quantity("1")}, []v1.ResourceName{gpu}, true},
		"device plugins":                         {serves, serves, v1.ResourceList{gpu: quantity("1"), nic: quantity("1")}, nil, true},
		"a device plugin that has lost its GPUs": {serves, serves, v1.ResourceList{gpu: quantity("0"), nic: quantity("1")}, nil, false},
		"classes that are gone since PreFilter":  {serves, nil, nil, nil, false},
		"classes that appeared after PreFilter":  {nil, serves, nil, nil, false},
		"no classes":                             {nil, nil, nil, nil, true},
	} {
		t.Run(title, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			server.On("prefilter", stub.JSON(fits))
			server.On("reserve", stub.JSON(sidecar.Reservation{ID: "r1"}))
			server.On("commit", stub.JSON(sidecar.Commit{Committed: true, Resources: row.written}))
			object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Allocatable: row.offered}}
			if err := w.factory.Core().V1().Nodes().Informer().GetIndexer().Add(object); err != nil {
				t.Fatal(err)
			}
			ctx, state, me := t.Context(), &cycleState{}, withRequest(withRequest(pod("p"), gpu, "1"), nic, "1")
			w.classes = row.before
			plugin.PreFilter(ctx, state, me, nil)
			if status := plugin.Reserve(ctx, state, me, "n1"); !status.IsSuccess() {
				t.Fatal(status.Message())
			}
			w.woken()
			w.classes = row.after
			status := plugin.Bind(ctx, state, me, "n1")
			if status.IsSkip() != row.bound || status.IsRejected() == row.bound {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if requeued := len(w.woken()) == 1; requeued == row.bound {
				t.Errorf("requeued: %v", requeued)
			}
		})
	}
}
