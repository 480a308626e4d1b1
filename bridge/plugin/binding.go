package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/sidecar"
)

// Reserve lets the allocator hold the pod's devices on the node. Nothing is written to the cluster yet.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	attempt := cycleOf(state)
	if attempt == nil {
		return nil
	}
	attempt.held.attempted = true
	reservation, err := p.client.Reserve(ctx, attempt.answer.Token, node)
	if err != nil {
		return p.outcome(ctx, pod, err)
	}
	attempt.held.reservation, attempt.held.unready = reservation.ID, reservation.Unready
	return nil
}

// Unreserve releases the reservation. If Reserve got no answer, the allocator finds the reservation by token and node. If the call to
// the allocator fails, the reservation expires later.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	attempt := cycleOf(state)
	if attempt == nil || !attempt.held.attempted {
		return
	}
	// The attempt's context may be cancelled, but this call must still be made.
	ctx = context.WithoutCancel(ctx)
	var err error
	if attempt.held.reservation != "" {
		err = p.client.Unreserve(ctx, attempt.held.reservation)
	} else {
		err = p.client.UnreserveUnknown(ctx, attempt.answer.Token, node)
	}
	*attempt.held = held{}
	if err != nil {
		logger := klog.FromContext(ctx)
		logger.Info("The reservation was not released and will expire", "plugin", Name, "pod", klog.KObj(pod), "node", node, "why", err)
	}
}

// PreBindPreFlight skips PreBind unless devices have to be made ready. If no plugin has work in PreBind, the scheduler does not
// write nominatedNodeName into the pod's status, which saves one write per pod.
func (p *Plugin) PreBindPreFlight(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	attempt := cycleOf(state)
	if attempt == nil || !attempt.held.unready {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind lets the allocator write the claims, and waits until the binding conditions of their devices are met. If the devices have
// no binding conditions, Bind lets the allocator write the claims instead.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	attempt := cycleOf(state)
	if attempt == nil || !attempt.held.unready {
		return nil
	}
	return p.commit(ctx, attempt, pod, node)
}

// Bind lets the allocator write the claims, unless PreBind did so. It returns Skip, so that the next plugin binds the pod. If the pod
// has two claims for one entry, Bind itself binds the version of the pod whose status names the written claims. Bind rejects a pod that
// would run without devices: the allocator's copy of a class or node may be older than the scheduler's, or the class may have appeared
// after PreFilter.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	attempt := cycleOf(state)
	if attempt != nil && !attempt.held.committed {
		if status := p.commit(ctx, attempt, pod, node); !status.IsSuccess() {
			return status
		}
	}
	if name := p.unserved(attempt, pod, node); name != "" {
		return p.again(ctx, pod, fmt.Sprintf("neither a claim nor a device plugin of node %s serves %s", node, name))
	}
	if attempt == nil || attempt.held.version == "" {
		return fwk.NewStatus(fwk.Skip)
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: attempt.held.version},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	if apierrors.IsConflict(err) {
		return p.again(ctx, pod, "the pod changed after its claims were written")
	}
	return fwk.AsStatus(err)
}

// unserved returns an extended resource that NodeResourcesFit left to a DeviceClass and that no written claim requests, or "".
func (p *Plugin) unserved(attempt *cycle, pod *v1.Pod, node string) v1.ResourceName {
	names := p.served(pod)
	if attempt != nil {
		names = append(names, attempt.served...)
	}
	for _, name := range names {
		if (attempt == nil || !slices.Contains(attempt.held.resources, name)) && !p.offers(node, name) {
			return name
		}
	}
	return ""
}

// commit calls the allocator until the claims are written and their devices are ready, for at most the binding timeout.
func (p *Plugin) commit(ctx context.Context, attempt *cycle, pod *v1.Pod, node string) *fwk.Status {
	if attempt.held.reservation == "" {
		return fwk.AsStatus(fmt.Errorf("pod %s/%s has no reservation on node %s", pod.Namespace, pod.Name, node))
	}
	timedOut := fmt.Errorf("devices were not ready to be bound within %s", p.binding)
	ctx, cancel := context.WithTimeoutCause(ctx, p.binding, timedOut)
	defer cancel()
	message := ""
	for {
		commit, err := p.client.Commit(ctx, attempt.held.reservation)
		if err == nil && commit.Committed {
			attempt.held.committed, attempt.held.version = true, commit.ResourceVersion
			attempt.held.resources = commit.Resources
			return nil
		}
		if errors.Is(context.Cause(ctx), timedOut) {
			return fwk.NewStatus(fwk.Unschedulable, joined(timedOut.Error(), message))
		}
		if err != nil {
			return p.outcome(ctx, pod, err)
		}
		message = sidecar.Shorten(commit.Message)
		sleep(ctx, p.pause)
	}
}

func joined(sentence, detail string) string {
	if detail == "" {
		return sentence
	}
	return sentence + ": " + detail
}

func sleep(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}
