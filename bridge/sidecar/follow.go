package sidecar

import (
	"context"
	"sync"
	"time"
)

// Health is what is known about the allocator, in words for people.
type Health struct {
	Usable  bool
	Quiet   bool   // not usable, but nothing is wrong: another one leads, or it is only being started
	Message string // why not usable
	leader  string
}

// Follower keeps an eye on the allocator: whether it may be asked, and which pods it wants tried again.
//
// Nothing that happens while the allocator is away is lost: whenever it becomes usable, or a long poll was broken,
// all waiting pods are woken. Scheduler and allocator start side by side, so one that was never ready is given some time
// before anybody hears that it is away.
type Follower struct {
	client   *Client
	interval time.Duration
	grace    time.Duration // how long an allocator may take to be ready for the first time
	begun    time.Time
	woken    func(pods []string, all bool)

	mutex  sync.Mutex
	health Health
	ready  bool // it was ready once
	judged bool // what is known was known without grace, and pods could be told
}

// NewFollower returns a follower that tells `woken` about pods; `woken` may be called from two goroutines at once.
func NewFollower(client *Client, interval, grace time.Duration, woken func(pods []string, all bool)) *Follower {
	unknown := Health{Quiet: true, Message: "it has not been asked yet"}
	return &Follower{
		client: client, interval: interval, grace: grace, begun: time.Now(), woken: woken, health: unknown,
	}
}

// Health says what is known now, without asking.
func (f *Follower) Health() Health {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.health
}

// Missed notes that a call found the allocator out of service. The next good state then wakes everybody.
func (f *Follower) Missed(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.health = Health{Message: Shorten(err.Error())}
}

// Run asks for the state again and again, and waits for pods to wake, until the context ends.
func (f *Follower) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { f.watchState(ctx) })
	both.Go(func() { f.watchWake(ctx) })
	both.Wait()
}

func (f *Follower) watchState(ctx context.Context) {
	for ctx.Err() == nil {
		f.Look(ctx)
		pause(ctx, f.interval)
	}
}

// Look asks for the state once.
func (f *Follower) Look(ctx context.Context) {
	state, err := f.client.State(ctx)
	if f.note(state, err) {
		f.woken(nil, true)
	}
}

// note returns whether waiting pods have to be looked at again: the allocator has become usable, or is another one
// than before, or did not get ready in time, which nobody has told the pods yet.
func (f *Follower) note(state *State, err error) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	before := f.health
	f.health = healthOf(state, err)
	f.ready = f.ready || err == nil && state.Ready
	if !f.ready && time.Since(f.begun) < f.grace {
		f.health.Quiet = true
		return false
	}
	first := !f.judged
	f.judged = true
	if f.health.Usable {
		return !before.Usable || before.leader != f.health.leader
	}
	return first && !f.health.Quiet
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
		message = "another one leads"
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
				f.Missed(err) // it may be back before anybody asks for its state
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
		// An allocator that always has something to say must not keep us busy.
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
