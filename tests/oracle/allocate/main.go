// Command allocate asks the in-tree allocator what it would do for some claims on one node, all features on but those named.
//
// With a file of ../minors for its modules it is the allocator of another minor; features_*.go and state*.go have the differences.
package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	Node   *v1.Node                     `json:"node"`
	Claims []*resourceapi.ResourceClaim `json:"claims"`
	// AllocatedClaims are in use: their status.allocation is what the devices are charged with.
	AllocatedClaims  []*resourceapi.ResourceClaim `json:"allocatedClaims"`
	Slices           []*resourceapi.ResourceSlice `json:"slices"`
	Classes          []*resourceapi.DeviceClass   `json:"classes"`
	DeviceTaintRules []taintRule                  `json:"deviceTaintRules"`
	DeadlineMs       int                          `json:"deadlineMs"`
	// Nodes, if given, are asked one after the other with one allocator, as a scheduling cycle does; then the answer
	// names those that fit and the time is that of the allocator alone.
	Nodes []*v1.Node `json:"nodes"`
	// Features named here are switched off; everything else is on.
	Without []string `json:"without"`
}

type answer struct {
	// Verdict is feasible, infeasible, error or timeout.
	Verdict     string                         `json:"verdict"`
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
	Error       string                         `json:"error,omitempty"`
	// NodeOnly tells an error that only rules out this node from one that ends the scheduling attempt.
	NodeOnly bool     `json:"nodeOnly,omitempty"`
	Fits     []string `json:"fits,omitempty"`
	// AllocatorMs is the time spent in the allocator, without reading objects.
	AllocatorMs float64 `json:"allocatorMs"`
	ElapsedMs   float64 `json:"elapsedMs"`
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	deadline := time.Duration(r.DeadlineMs) * time.Millisecond
	if deadline <= 0 {
		deadline = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended, stuck := make(chan struct{}), make(chan struct{})
	defer close(ended)
	go limit(deadline, cancel, ended, stuck)
	start := time.Now()
	done := make(chan answer, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- answer{Verdict: "error", Error: fmt.Sprintf("panic: %v", cause)}
			}
		}()
		done <- allocate(ctx, r)
	}()
	var a answer
	select {
	case a = <-done:
	case <-stuck:
		a = answer{Verdict: "timeout"}
	}
	a.ElapsedMs = milliseconds(start)
	return a
}

// limit cancels a search that has worked for so long, and says so if that does not end it. What counts is the time of the
// processor: on a busy machine the same questions are answered as on a quiet one.
func limit(deadline time.Duration, cancel context.CancelFunc, ended <-chan struct{}, stuck chan<- struct{}) {
	begun := worked()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		case <-look.C:
		}
		spent := worked() - begun
		if spent >= deadline {
			cancel()
		}
		if spent >= deadline+500*time.Millisecond {
			close(stuck)
			return
		}
	}
}

// worked is the processor time that this process has had.
func worked() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func allocate(ctx context.Context, r request) answer {
	features, err := featuresWithout(r.Without)
	if err != nil {
		return answer{Verdict: "error", Error: err.Error()}
	}
	celCache := dracel.NewCache(10, celFeatures(features))
	slices, err := converted(tainted(r.Slices, r.DeviceTaintRules))
	if err != nil {
		return failed(err)
	}
	start := time.Now()
	state, err := allocatedState(r.AllocatedClaims, features.ConsumableCapacity)
	if err != nil {
		return failed(err)
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classLister(r.Classes), slices, celCache)
	if err != nil {
		return failed(err)
	}
	if len(r.Nodes) > 0 {
		return everywhere(ctx, allocator, r, start)
	}
	allocations, err := allocator.Allocate(ctx, r.Node, r.Claims)
	spent := milliseconds(start)
	if err != nil {
		a := failed(err)
		a.AllocatorMs = spent
		return a
	}
	if allocations == nil && len(r.Claims) > 0 {
		return answer{Verdict: "infeasible", AllocatorMs: spent}
	}
	return answer{Verdict: "feasible", Allocations: allocations, AllocatorMs: spent}
}

func everywhere(ctx context.Context, allocator structured.Allocator, r request, start time.Time) answer {
	a := answer{Verdict: "infeasible"}
	for _, node := range r.Nodes {
		allocations, err := allocator.Allocate(ctx, node, r.Claims)
		if err != nil {
			return failed(err)
		}
		if allocations != nil {
			a.Verdict = "feasible"
			a.Fits = append(a.Fits, node.Name)
		}
	}
	a.AllocatorMs = milliseconds(start)
	return a
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

func failed(err error) answer {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return answer{Verdict: "timeout", Error: err.Error()}
	}
	return answer{Verdict: "error", Error: err.Error(), NodeOnly: onlyThisNode(err)}
}

func featuresWithout(names []string) (structured.Features, error) {
	var f structured.Features
	switches := reflect.ValueOf(&f).Elem()
	for i := range switches.NumField() {
		switches.Field(i).SetBool(true)
	}
	for _, name := range names {
		one := switches.FieldByName(name)
		if !one.IsValid() {
			return f, fmt.Errorf("no such feature: %s", name)
		}
		one.SetBool(false)
	}
	return f, nil
}

// allocatedState gathers what is in use as the scheduler's foreachAllocatedDevice does (it is not exported).
func allocatedState(claims []*resourceapi.ResourceClaim, consumable bool) (structured.AllocatedState, error) {
	state := emptyState()
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if ptr.Deref(result.AdminAccess, false) {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if !consumable || result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			addShare(&state, id, result.ShareID)
			if err := checkConsumed(result.ConsumedCapacity); err != nil {
				return state, err
			}
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state, nil
}

// taintRule is what the DeviceTaintRules of all versions have in common.
type taintRule struct {
	Spec struct {
		DeviceSelector *struct {
			Driver *string `json:"driver"`
			Pool   *string `json:"pool"`
			Device *string `json:"device"`
		} `json:"deviceSelector"`
		Taint resourceapi.DeviceTaint `json:"taint"`
	} `json:"spec"`
}

// tainted adds the taints of the rules as resourceslice/tracker.applyPatches does (it is not exported).
func tainted(slices []*resourceapi.ResourceSlice, rules []taintRule) []*resourceapi.ResourceSlice {
	patched := make([]*resourceapi.ResourceSlice, 0, len(slices))
	for _, slice := range slices {
		slice = slice.DeepCopy()
		for _, rule := range rules {
			selector := rule.Spec.DeviceSelector
			if selector == nil || selector.Driver != nil && *selector.Driver != slice.Spec.Driver ||
				selector.Pool != nil && *selector.Pool != slice.Spec.Pool.Name {
				continue
			}
			for i := range slice.Spec.Devices {
				device := &slice.Spec.Devices[i]
				if selector.Device == nil || *selector.Device == device.Name {
					device.Taints = append(device.Taints, rule.Spec.Taint)
				}
			}
		}
		patched = append(patched, slice)
	}
	return patched
}

type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) { return l, nil }

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "deviceclasses"}, name)
}
