package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

func (w *world) logger() klog.Logger { return klog.Background() }

func TestPreEnqueueAdmitsAPodOnceItsClaimsExist(t *testing.T) {
	claimName := "made"
	templatedPod := podWithTemplate("p", &claimName)
	for name, row := range map[string]struct {
		pod     *v1.Pod
		claims  []*resourcev1.ResourceClaim
		message string // "": the pod is queued
	}{
		"no claims":                       {pod("p"), nil, ""},
		"a claim":                         {pod("p", "gpu"), []*resourcev1.ResourceClaim{claim("gpu")}, ""},
		"no such claim":                   {pod("p", "gpu"), nil, `resourceclaim "gpu" does not exist`},
		"one of two claims":               {pod("p", "gpu", "nic"), []*resourcev1.ResourceClaim{claim("gpu")}, `resourceclaim "nic" does not exist`},
		"a claim that is being deleted":   {pod("p", "gpu"), []*resourcev1.ResourceClaim{beingDeleted(claim("gpu"))}, `resourceclaim "gpu" is being deleted`},
		"a claim that is not created yet": {podWithTemplate("p", nil), nil, "not created"},
		"a claim that is created, but not in the cache": {templatedPod, nil, `resourceclaim "made" does not exist`},
		"a claim that was created for the pod":          {templatedPod, []*resourcev1.ResourceClaim{ownedBy(claim("made"), templatedPod)}, ""},
		"a claim that was created for another pod":      {templatedPod, []*resourcev1.ResourceClaim{ownedBy(claim("made"), pod("q"))}, "was not created for"},
		"a claim without an owner":                      {templatedPod, []*resourcev1.ResourceClaim{claim("made")}, "was not created for"},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, _ := newWorld(t, "")
			w.addClaims(t, row.claims...)
			status := plugin.PreEnqueue(t.Context(), row.pod)
			if status.IsSuccess() != (row.message == "") || !strings.Contains(status.Message(), row.message) {
				t.Errorf("got %v %q", status.Code(), status.Message())
			}
			if messages := w.events(); len(messages) > 0 {
				t.Errorf("events %q: the controller that creates claims reports this itself", messages)
			}
		})
	}
}

func TestATemplateWithoutRequestsNeedsNoClaim(t *testing.T) {
	plugin, _, _ := newWorld(t, "")
	podWithoutClaim := podWithTemplate("p", nil)
	podWithoutClaim.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	if status := plugin.PreEnqueue(t.Context(), podWithoutClaim); !status.IsSuccess() {
		t.Errorf("got %q", status.Message())
	}
}

func TestAGatedPodGetsOneEventWhileTheAllocatorIsAway(t *testing.T) {
	plugin, w, _ := newWorld(t, "")
	w.addPods(t, pod("p"), pod("q"))
	followWithoutGrace(t, plugin, w)
	w.woken()
	plugin.follower.Missed(errors.New("it cannot be reached: no such file"))
	for range 3 {
		status := plugin.PreEnqueue(t.Context(), pod("p"))
		if status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Errorf("got %v", status.Code())
		}
	}
	want := "Warning FailedScheduling waits for the drawbridge allocator: it cannot be reached: no such file"
	if messages := w.events(); !slices.Equal(messages, []string{want}) {
		t.Errorf("events %q", messages)
	}
	plugin.follower.Look(t.Context()) // the allocator is back
	if woken := w.woken(); !slices.Equal(woken, []string{"p", "q"}) {
		t.Errorf("woken %v", woken)
	}
	if status := plugin.PreEnqueue(t.Context(), pod("p")); !status.IsSuccess() {
		t.Errorf("got %q", status.Message())
	}
	plugin.follower.Missed(errors.New("it cannot be reached: no such file"))
	plugin.PreEnqueue(t.Context(), pod("p"))
	if messages := w.events(); len(messages) != 1 {
		t.Errorf("the second time: events %q", messages)
	}
}

func TestAStandbySchedulerWritesNoEvent(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	server.On("state", stub.JSON(sidecar.State{Ready: true, Message: "a-1 leads"}))
	plugin.follower.Look(t.Context())
	status := plugin.PreEnqueue(t.Context(), pod("p"))
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "a-1 leads") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	if messages := w.events(); len(messages) > 0 {
		t.Errorf("events %q", messages)
	}
}

func TestWaitingPodsGetAnEventIfTheAllocatorWasNeverReachable(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	server.Stop()
	w.addPods(t, pod("p"))
	w.woken()
	plugin.follower = withoutGrace(plugin, w)
	plugin.PreEnqueue(t.Context(), pod("p"))
	if messages := w.events(); len(messages) > 0 {
		t.Errorf("before the first state: events %q", messages)
	}
	plugin.follower.Look(t.Context())
	if woken := w.woken(); !slices.Equal(woken, []string{"p"}) {
		t.Errorf("woken %v", woken)
	}
	plugin.PreEnqueue(t.Context(), pod("p"))
	if messages := w.events(); len(messages) != 1 {
		t.Errorf("events %q", messages)
	}
}

func TestWakeRequeuesOnlyWaitingPodsOfTheProfile(t *testing.T) {
	plugin, w, _ := newWorld(t, "")
	bound, foreign, gone := pod("bound"), pod("foreign"), pod("gone")
	bound.Spec.NodeName = "n1"
	foreign.Spec.SchedulerName = "default-scheduler"
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	w.addPods(t, pod("a", "gpu"), pod("b"), bound, foreign, gone)
	w.woken()
	plugin.wake(w.logger(), []string{"team/a", "team/bound", "team/foreign", "team/gone", "team/none", "a/b/c"}, false)
	if woken := w.woken(); !slices.Equal(woken, []string{"a"}) {
		t.Errorf("by name: %v", woken)
	}
	plugin.wake(w.logger(), nil, true)
	if woken := w.woken(); !slices.Equal(woken, []string{"a", "b"}) {
		t.Errorf("all: %v", woken)
	}
}

func TestAnEventAboutAClaimConcernsOnlyThePodsThatUseIt(t *testing.T) {
	plugin, w, _ := newWorld(t, "")
	w.addPods(t, pod("mine", "gpu"), pod("other", "nic"))
	for name, row := range map[string]struct {
		before, after any
		all           bool
		pods          string
	}{
		"made":             {nil, claim("gpu"), false, "mine"},
		"allocated":        {claim("gpu"), allocated(claim("gpu")), false, "mine"},
		"another pod's":    {nil, claim("shared"), false, ""},
		"deallocated":      {allocated(claim("gpu")), claim("gpu"), false, "mine"},
		"deleted":          {claim("gpu"), nil, false, "mine"},
		"deleted, unknown": {cache.DeletedFinalStateUnknown{}, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := plugin.podsOfClaim(w.logger(), row.before, row.after)
			if err != nil || result.AllPods != row.all {
				t.Fatalf("got %+v, %v", result, err)
			}
			var podNames []string
			for _, affected := range result.Pods {
				podNames = append(podNames, affected.Name)
			}
			if strings.Join(podNames, " ") != row.pods {
				t.Errorf("affected pods: %v", podNames)
			}
		})
	}
}

func TestAPodIsRequeuedIfAnEventMayHelpIt(t *testing.T) {
	me := pod("p", "gpu")
	reserved := allocated(claim("gpu", "gpus"))
	reserved.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "u"}}
	labelled := claim("gpu", "gpus")
	labelled.Labels = map[string]string{"a": "b"}
	class := func(name, resource string) *resourcev1.DeviceClass {
		deviceClass := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if resource != "" {
			deviceClass.Spec.ExtendedResourceName = &resource
		}
		return deviceClass
	}
	withAlternatives := claim("choice")
	withAlternatives.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		{FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "big"}, {DeviceClassName: "small"}}},
	}
	asksByName := withRequest(pod("named"), "vendor.example/gpu", "1")
	asksByClass := withRequest(pod("named"), "deviceclass.resource.kubernetes.io/gpus", "1")
	for name, row := range map[string]struct {
		pod           *v1.Pod
		hint          func(*Plugin) fwk.QueueingHintFn
		before, after any
		queue         bool
	}{
		"its claim is made":                                           {me, claims, nil, claim("gpu", "gpus"), true},
		"its claim is deallocated":                                    {me, claims, allocated(claim("gpu", "gpus")), claim("gpu", "gpus"), true},
		"its claim has one user less":                                 {me, claims, reserved, allocated(claim("gpu", "gpus")), true},
		"its claim has another label":                                 {me, claims, claim("gpu", "gpus"), labelled, false},
		"another claim is made":                                       {me, claims, nil, claim("more", "gpus"), false},
		"another claim is allocated":                                  {me, claims, claim("held", "gpus"), allocated(claim("held", "gpus")), false},
		"a deletion was not watched":                                  {me, claims, cache.DeletedFinalStateUnknown{}, nil, false},
		"another claim gives a device back":                           {me, claims, allocated(claim("held", "gpus")), claim("held", "gpus"), false},
		"its claim is deleted":                                        {me, claims, claim("gpu", "gpus"), nil, false},
		"another claim of it is missing":                              {pod("q", "gpu", "none"), claims, nil, claim("gpu", "gpus"), false},
		"its status names its claim":                                  {me, updates, me, me, true},
		"its status names a missing claim":                            {me, updates, me, pod("p", "none"), false},
		"something that is not a pod":                                 {me, updates, me, nil, true},
		"its class is made":                                           {me, classes, nil, class("gpus", ""), true},
		"its class is changed":                                        {me, classes, class("gpus", ""), class("gpus", ""), true},
		"another class is made":                                       {me, classes, nil, class("nics", ""), false},
		"a class of an alternative is made":                           {pod("p", "choice"), classes, nil, class("small", ""), true},
		"a class no longer serves its extended resource":              {asksByName, classes, class("gpus", "vendor.example/gpu"), class("gpus", ""), true},
		"a class serves another extended resource":                    {asksByName, classes, class("gpus", "vendor.example/nic"), nil, false},
		"a class that it requests by its implicit name is deleted":    {asksByClass, classes, class("gpus", ""), nil, true},
		"devices are published":                                       {me, devices, nil, &resourcev1.ResourceSlice{}, true},
		"devices are published, and it requests an extended resource": {asksByName, devices, nil, &resourcev1.ResourceSlice{}, true},
		"devices are published, and it has no claims":                 {pod("plain"), devices, nil, &resourcev1.ResourceSlice{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, _ := newWorld(t, "")
			w.classes = map[v1.ResourceName]*resourcev1.DeviceClass{"vendor.example/gpu": class("gpus", "vendor.example/gpu")}
			w.addClaims(t, claim("gpu", "gpus"), claim("held", "gpus"), withAlternatives)
			got, err := row.hint(plugin)(w.logger(), row.pod, row.before, row.after)
			if err != nil && got == fwk.QueueSkip {
				t.Error(err)
			}
			if (got == fwk.Queue) != row.queue {
				t.Errorf("got %v", got)
			}
		})
	}
}

func claims(p *Plugin) fwk.QueueingHintFn  { return p.afterClaim }
func updates(p *Plugin) fwk.QueueingHintFn { return p.afterOwnUpdate }
func classes(p *Plugin) fwk.QueueingHintFn { return p.afterClass }
func devices(p *Plugin) fwk.QueueingHintFn { return p.afterDevices }

func TestEveryEventExceptThatOfANodeHasAQueueingHint(t *testing.T) {
	registered, err := (&Plugin{}).EventsToRegister(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range registered {
		if event.QueueingHintFn == nil && event.Event.Resource != fwk.Node {
			t.Errorf("%s requeues every pod", event.Event.Label())
		}
	}
}

func TestPreFilterWaitsWhileAnotherReplicaLeadsOrMayLead(t *testing.T) {
	standby := stub.JSON(sidecar.State{Ready: true, Message: "a-1 leads"})
	for name, loseLead := range map[string]func(*Plugin, *stub.Server){
		"another leads": func(plugin *Plugin, server *stub.Server) {
			server.On("state", standby)
			plugin.follower.Look(t.Context())
		},
		"a call was refused": func(plugin *Plugin, _ *stub.Server) {
			plugin.follower.Missed(&sidecar.Refusal{Status: 503, Sentence: "another replica leads"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, _, server := newWorld(t, "")
			plugin.standby = 100 * time.Millisecond
			loseLead(plugin, server)
			start := time.Now()
			_, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p"), nil)
			if status.Code() != fwk.UnschedulableAndUnresolvable || time.Since(start) < plugin.standby {
				t.Errorf("got %v after %v", status.Code(), time.Since(start))
			}
			plugin.standby = time.Minute
			server.On("state", stub.JSON(sidecar.State{Leading: true, Ready: true, Identity: "a"}))
			time.AfterFunc(20*time.Millisecond, func() { plugin.follower.Look(t.Context()) })
			if _, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p"), nil); !status.IsSkip() {
				t.Errorf("once it leads: %v %q", status.Code(), status.Message())
			}
		})
	}
}

func TestPreFilterRejectsAtOnceWhileTheAllocatorIsAway(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	plugin.standby = time.Minute
	server.Stop()
	followWithoutGrace(t, plugin, w)
	if _, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p"), nil); !status.IsRejected() {
		t.Errorf("got %v", status.Code())
	}
}

// withoutGrace returns a follower that reports an unreachable allocator at once.
func withoutGrace(plugin *Plugin, w *world) *sidecar.Follower {
	return sidecar.NewFollower(plugin.client, stateInterval, 0, func(pods []string, all bool) {
		plugin.wake(w.logger(), pods, all)
	})
}

func followWithoutGrace(t *testing.T, plugin *Plugin, w *world) {
	t.Helper()
	plugin.follower = withoutGrace(plugin, w)
	plugin.follower.Look(t.Context())
}
