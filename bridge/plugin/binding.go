package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/sidecar"
)

// Reserve reserves the devices that the allocator found on the node.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	now := cycleOf(state)
	if now == nil {
		return nil
	}
	now.held.attempted = true
	reservation, err := p.client.Reserve(ctx, now.answer.Token, node)
	if err != nil {
		return p.outcome(ctx, pod, err)
	}
	now.held.reservation, now.held.unready = reservation.ID, reservation.Unready
	return nil
}

// Unreserve releases what Reserve reserved, or may have reserved. If that fails, the reservation expires.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	now := cycleOf(state)
	if now == nil || !now.held.attempted {
		return
	}
	// The attempt's context may be cancelled; this call must still be made.
	ctx = context.WithoutCancel(ctx)
	var err error
	if now.held.reservation != "" {
		err = p.client.Unreserve(ctx, now.held.reservation)
	} else {
		err = p.client.UnreserveUnknown(ctx, now.answer.Token, node)
	}
	*now.held = held{}
	if err != nil {
		logger := klog.FromContext(ctx)
		logger.Info("A reservation is left to expire", "plugin", Name, "pod", klog.KObj(pod), "node", node, "why", err)
	}
}

// PreBindPreFlight reports whether devices have to be made ready. Without that there is nothing to wait for, and the scheduler need not
// announce the node in the pod's status first, which is one write.
func (p *Plugin) PreBindPreFlight(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	now := cycleOf(state)
	if now == nil || !now.held.unready {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind lets the allocator write the claims, and waits for the binding conditions of their devices, if they have any.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	now := cycleOf(state)
	if now == nil || !now.held.unready {
		return nil
	}
	return p.commit(ctx, now, pod, node)
}

// Bind lets the allocator write the claims, unless PreBind had that done, and leaves the binding to the next plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	now := cycleOf(state)
	if now != nil && !now.held.committed {
		if status := p.commit(ctx, now, pod, node); !status.IsSuccess() {
			return status
		}
	}
	return fwk.NewStatus(fwk.Skip)
}

func (p *Plugin) commit(ctx context.Context, now *cycle, pod *v1.Pod, node string) *fwk.Status {
	if now.held.reservation == "" {
		return fwk.AsStatus(fmt.Errorf("pod %s/%s has no reservation on node %s", pod.Namespace, pod.Name, node))
	}
	waited := fmt.Errorf("devices were not ready to be bound within %s", p.binding)
	ctx, cancel := context.WithTimeoutCause(ctx, p.binding, waited)
	defer cancel()
	message := ""
	for {
		commit, err := p.client.Commit(ctx, now.held.reservation)
		if err == nil && commit.Committed {
			now.held.committed = true
			return nil
		}
		if errors.Is(context.Cause(ctx), waited) {
			return fwk.NewStatus(fwk.Unschedulable, joined(waited.Error(), message))
		}
		if err != nil {
			return p.outcome(ctx, pod, err)
		}
		message = sidecar.Shorten(commit.Message)
		rest(ctx, p.pause)
	}
}

func joined(sentence, detail string) string {
	if detail == "" {
		return sentence
	}
	return sentence + ": " + detail
}

func rest(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}
