package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

const profile = "drawbridge"

// world is a scheduler as far as the plugin sees it: its caches, its queue and the other plugins.
type world struct {
	fwk.Handle

	factory  informers.SharedInformerFactory
	recorder *events.FakeRecorder
	classes  map[v1.ResourceName]*resourcev1.DeviceClass
	nodes    []fwk.NodeInfo
	enabled  []string // Filter plugins of the profile
	binders  []string // Bind plugins of the profile
	others   func(pod *v1.Pod, node string) *fwk.Status

	mutex     sync.Mutex
	activated []string

	bindError error
	bindings  []*v1.Binding
}

func (w *world) ProfileName() string                                    { return profile }
func (w *world) SharedInformerFactory() informers.SharedInformerFactory { return w.factory }
func (w *world) EventRecorder() events.EventRecorderLogger              { return w.recorder }
func (w *world) SharedDRAManager() fwk.SharedDRAManager                 { return manager{w: w} }
func (w *world) Parallelizer() fwk.Parallelizer                         { return parallelizer{} }
func (w *world) SnapshotSharedLister() fwk.SharedLister                 { return lister{w: w} }

func (w *world) ClientSet() kubernetes.Interface { return clientSet{w: w} }

// clientSet is a client that can only bind pods.
type clientSet struct {
	kubernetes.Interface
	corev1.CoreV1Interface
	corev1.PodInterface
	w *world
}

func (c clientSet) CoreV1() corev1.CoreV1Interface  { return c }
func (c clientSet) Pods(string) corev1.PodInterface { return c }

func (c clientSet) Bind(_ context.Context, binding *v1.Binding, _ metav1.CreateOptions) error {
	c.w.bindings = append(c.w.bindings, binding)
	return c.w.bindError
}

func (w *world) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, pod := range pods {
		w.activated = append(w.activated, pod.Name)
	}
}

// woken returns the names of the pods that were activated since the last call.
func (w *world) woken() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	names := w.activated
	w.activated = nil
	slices.Sort(names)
	return names
}

func (w *world) RunFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if status := (&Plugin{}).Filter(ctx, state, pod, info); !status.IsSuccess() {
		return status
	}
	if w.others == nil {
		return nil
	}
	return w.others(pod, info.Node().Name)
}

func (w *world) ListPlugins() *schedulerconfig.Plugins {
	plugins := &schedulerconfig.Plugins{}
	for _, name := range w.enabled {
		plugins.Filter.Enabled = append(plugins.Filter.Enabled, schedulerconfig.Plugin{Name: name})
	}
	for _, name := range w.binders {
		plugins.Bind.Enabled = append(plugins.Bind.Enabled, schedulerconfig.Plugin{Name: name})
	}
	return plugins
}

type manager struct {
	fwk.SharedDRAManager
	w *world
}

func (m manager) DeviceClassResolver() fwk.DeviceClassResolver { return m }

func (m manager) GetDeviceClass(name v1.ResourceName) *resourcev1.DeviceClass {
	return m.w.classes[name]
}

type parallelizer struct{}

func (parallelizer) Until(_ context.Context, pieces int, do workqueue.DoWorkPieceFunc, _ string) {
	var group sync.WaitGroup
	for piece := range pieces {
		group.Go(func() { do(piece) })
	}
	group.Wait()
}

type lister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	w *world
}

func (l lister) NodeInfos() fwk.NodeInfoLister       { return l }
func (l lister) List() ([]fwk.NodeInfo, error)       { return l.w.nodes, nil }
func (l lister) Get(string) (fwk.NodeInfo, error)    { return nil, fwk.ErrNotFound }
func (l lister) StorageInfos() fwk.StorageInfoLister { return nil }

type nodeInfo struct {
	fwk.NodeInfo
	node *v1.Node
	pods []fwk.PodInfo
}

func (n nodeInfo) Node() *v1.Node         { return n.node }
func (n nodeInfo) GetPods() []fwk.PodInfo { return n.pods }

func node(name string, pods ...*v1.Pod) fwk.NodeInfo {
	info := nodeInfo{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for _, pod := range pods {
		info.pods = append(info.pods, podInfo{pod: pod})
	}
	return info
}

type podInfo struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p podInfo) GetPod() *v1.Pod { return p.pod }

// cycleState is the scheduler's CycleState of one attempt.
type cycleState struct {
	fwk.CycleState
	data sync.Map
}

func (s *cycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	value, ok := s.data.Load(key)
	if !ok {
		return nil, fwk.ErrNotFound
	}
	return value.(fwk.StateData), nil
}

func (s *cycleState) Write(key fwk.StateKey, value fwk.StateData) { s.data.Store(key, value) }

func (s *cycleState) Clone() fwk.CycleState {
	clone := &cycleState{}
	s.data.Range(func(key, value any) bool {
		clone.data.Store(key, value.(fwk.StateData).Clone())
		return true
	})
	return clone
}

// newWorld returns a plugin in its own world, with an allocator that leads.
func newWorld(t *testing.T, moreArgs string) (*Plugin, *world, *stub.Server) {
	t.Helper()
	server := stub.Serve(t)
	server.On("state", stub.JSON(sidecar.State{Leading: true, Ready: true, Identity: "a"}))
	w := &world{
		factory:  informers.NewSharedInformerFactory(nil, 0),
		recorder: events.NewFakeRecorder(1000),
		binders:  []string{Name, "DefaultBinder"},
	}
	args := fmt.Sprintf(`{"socket": %q, "timeout": "1m", "commitTimeout": "1m"%s}`, server.Socket, moreArgs)
	plugin, err := build(t.Context(), &runtime.Unknown{Raw: []byte(args)}, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.client.Close)
	plugin.follower.Look(t.Context())
	return plugin, w, server
}

func (w *world) addPods(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := w.factory.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) addClaims(t *testing.T, claims ...*resourcev1.ResourceClaim) {
	t.Helper()
	for _, claim := range claims {
		if err := w.factory.Resource().V1().ResourceClaims().Informer().GetIndexer().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) events() []string {
	var messages []string
	for {
		select {
		case message := <-w.recorder.Events:
			messages = append(messages, message)
		default:
			return messages
		}
	}
}

// pod returns a waiting pod that uses claims by name.
func pod(name string, claims ...string) *v1.Pod {
	created := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{SchedulerName: profile},
	}
	for _, claim := range claims {
		entry := v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim}
		created.Spec.ResourceClaims = append(created.Spec.ResourceClaims, entry)
	}
	return created
}

// podWithTemplate returns a pod whose claim comes from a template, and the name the claim got, if it exists.
func podWithTemplate(name string, claim *string) *v1.Pod {
	created := pod(name)
	templateName := "template"
	created.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &templateName}}
	if claim != nil {
		created.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: claim}}
	}
	return created
}

func withRequest(pod *v1.Pod, resource v1.ResourceName, amount string) *v1.Pod {
	requests := v1.ResourceList{resource: quantity(amount)}
	container := v1.Container{Resources: v1.ResourceRequirements{Requests: requests}}
	pod.Spec.Containers = append(pod.Spec.Containers, container)
	return pod
}

func withPriority(pod *v1.Pod, priority int32) *v1.Pod {
	pod.Spec.Priority = &priority
	return pod
}

// claim returns a claim that requests devices of classes.
func claim(name string, classes ...string) *resourcev1.ResourceClaim {
	created := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
	}
	for index, class := range classes {
		exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class}
		request := resourcev1.DeviceRequest{Name: fmt.Sprint("r", index), Exactly: exactly}
		created.Spec.Devices.Requests = append(created.Spec.Devices.Requests, request)
	}
	return created
}

func allocated(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	return claim
}

func ownedBy(claim *resourcev1.ResourceClaim, owner *v1.Pod) *resourcev1.ResourceClaim {
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1.SchemeGroupVersion.WithKind("Pod"))}
	return claim
}

func beingDeleted(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	now := metav1.Now()
	claim.DeletionTimestamp = &now
	return claim
}
