package sidecar

import (
	"context"
	"sync"
	"time"
)

// Health is the state of the allocator, with a message for people.
type Health struct {
	Usable  bool
	Quiet   bool   // the allocator is not usable, but this is no problem yet: another replica leads, or it is starting or ending
	Message string // why the allocator is not usable
	leader  string
}

// Follower watches the allocator: whether it is usable, and which pods it requeues.
//
// No event is lost while the allocator is away: whenever it becomes usable again, or a long poll breaks, all waiting pods are
// requeued. An allocator that starts or ends is not reported as a problem for some time, because it starts together with its
// scheduler, and when it ends, another replica places the pods.
type Follower struct {
	client   *Client
	interval time.Duration
	grace    time.Duration // how long the allocator may be not ready before this counts as a problem
	woken    func(pods []string, all bool)

	mutex  sync.Mutex
	health Health
	seen   time.Time // when the allocator was ready last, or this follower was created
	judged bool      // whether the last state was ready or came after the grace period, so that the pods' events show it
}

// NewFollower returns a follower that passes the pods to requeue to `woken`. Two goroutines may call `woken` at the same time.
func NewFollower(client *Client, interval, grace time.Duration, woken func(pods []string, all bool)) *Follower {
	unknown := Health{Quiet: true, Message: "it has not been asked yet"}
	return &Follower{
		client: client, interval: interval, grace: grace, seen: time.Now(), woken: woken, health: unknown,
	}
}

// Health returns the last known state, without a call.
func (f *Follower) Health() Health {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.health
}

// Missed records that a call found the allocator out of service. The next good state then requeues all waiting pods.
func (f *Follower) Missed(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.health = Health{Quiet: time.Since(f.seen) < f.grace, Message: Shorten(err.Error())}
}

// Run polls the state, and waits for pods to requeue, until the context ends.
func (f *Follower) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { f.watchState(ctx) })
	loops.Go(func() { f.watchWake(ctx) })
	loops.Wait()
}

func (f *Follower) watchState(ctx context.Context) {
	for ctx.Err() == nil {
		f.Look(ctx)
		pause(ctx, f.interval)
	}
}

// Look fetches the state once.
func (f *Follower) Look(ctx context.Context) {
	state, err := f.client.State(ctx)
	if f.note(state, err) {
		f.woken(nil, true)
	}
}

// note records a state and reports whether waiting pods must be requeued: the allocator has become usable, another replica
// leads than before, or the allocator was not ready in time and the pods' events do not show this yet.
func (f *Follower) note(state *State, err error) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	before := f.health
	f.health = healthOf(state, err)
	if err == nil && state.Ready {
		f.seen = time.Now()
	} else if time.Since(f.seen) < f.grace {
		f.health.Quiet, f.judged = true, false
		return false
	}
	notShownYet := !f.judged
	f.judged = true
	if f.health.Usable {
		return !before.Usable || before.leader != f.health.leader
	}
	return notShownYet && !f.health.Quiet
}

func healthOf(state *State, err error) Health {
	if err != nil {
		return Health{Message: Shorten(err.Error())}
	}
	if state.Leading && state.Ready {
		return Health{Usable: true, leader: state.Identity}
	}
	message := "it is not ready"
	if state.Ready {
		message = "another replica leads"
	}
	if state.Message != "" {
		message += ": " + Shorten(state.Message)
	}
	return Health{Quiet: state.Ready, Message: message}
}

func (f *Follower) watchWake(ctx context.Context) {
	after, broken := int64(0), false
	for ctx.Err() == nil {
		if !f.Health().Usable {
			after, broken = 0, true
			pause(ctx, f.interval)
			continue
		}
		wake, err := f.client.Wake(ctx, after)
		if err != nil {
			if MayRecover(err) && ctx.Err() == nil {
				f.Missed(err) // the allocator may be back before the next poll of its state
			}
			after, broken = 0, true
			pause(ctx, f.interval)
			continue
		}
		all := wake.All || broken || wake.Seq < after
		if all || len(wake.Pods) > 0 {
			f.woken(wake.Pods, all)
		}
		after, broken = wake.Seq, false
		// This limits the rate of calls if the allocator answers each of them at once.
		pause(ctx, f.interval/50)
	}
}

func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
