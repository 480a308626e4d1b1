package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"drawbridge.dev/bridge/internal/stub"
)

func TestTheHealthOfTheAllocatorFollowsFromItsStates(t *testing.T) {
	leads := &State{Leading: true, Ready: true, Identity: "a"}
	other := &State{Leading: true, Ready: true, Identity: "b"}
	standby := &State{Ready: true, Message: "a-1 leads"}
	warming := &State{Leading: true, Message: "reads the cluster"}
	broken := errors.New("it cannot be reached: no such file")
	type step struct {
		state         *State
		err           error
		usable, quiet bool
		wakes         bool
	}
	for name, steps := range map[string][]step{
		"leads from the start":                      {{leads, nil, true, false, true}, {leads, nil, true, false, false}},
		"is away and comes back":                    {{leads, nil, true, false, true}, {nil, broken, false, false, false}, {leads, nil, true, false, true}},
		"another replica took over":                 {{leads, nil, true, false, true}, {other, nil, true, false, true}},
		"stands by, then leads":                     {{standby, nil, false, true, false}, {leads, nil, true, false, true}},
		"stands by and dies":                        {{standby, nil, false, true, false}, {nil, broken, false, false, false}},
		"was never reachable, so pods get an event": {{nil, broken, false, false, true}, {nil, broken, false, false, false}},
		"is not ready yet":                          {{warming, nil, false, false, true}, {leads, nil, true, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			follower := NewFollower(nil, time.Second, 0, nil)
			if health := follower.Health(); health.Usable || !health.Quiet {
				t.Errorf("before anything is known: %+v", health)
			}
			for index, step := range steps {
				wakes := follower.note(step.state, step.err)
				health := follower.Health()
				if wakes != step.wakes || health.Usable != step.usable || health.Quiet != step.quiet {
					t.Errorf("step %d: wakes %v, %+v", index, wakes, health)
				}
				if !health.Usable && health.Message == "" {
					t.Errorf("step %d: the health has no message", index)
				}
			}
		})
	}
}

func TestTheFirstGoodStateAfterAMissedCallWakesAllPods(t *testing.T) {
	leads := &State{Leading: true, Ready: true, Identity: "a"}
	follower := NewFollower(nil, time.Second, time.Hour, nil)
	follower.note(leads, nil)
	follower.Missed(&Unreachable{errors.New("connection reset")})
	if health := follower.Health(); health.Usable || !health.Quiet {
		t.Errorf("after a miss: %+v", health)
	}
	if !follower.note(leads, nil) {
		t.Error("no pod was woken")
	}
}

func TestAStartingAllocatorIsNotReportedBeforeTheGracePeriodEnds(t *testing.T) {
	broken := errors.New("it cannot be reached: no such file")
	reading := &State{Message: "reads the cluster"}
	follower := NewFollower(nil, time.Second, time.Hour, nil)
	for _, answer := range []struct {
		state *State
		err   error
	}{{nil, broken}, {reading, nil}, {nil, broken}} {
		if follower.note(answer.state, answer.err) {
			t.Error("pods were woken during the grace period")
		}
		if health := follower.Health(); health.Usable || !health.Quiet || health.Message == "" {
			t.Errorf("while it starts: %+v", health)
		}
	}
	follower.seen = time.Now().Add(-2 * time.Hour)
	if !follower.note(nil, broken) {
		t.Error("after the grace period no pod was woken")
	}
	if health := follower.Health(); health.Quiet {
		t.Errorf("after the grace period: %+v", health)
	}
	if follower.note(nil, broken) {
		t.Error("pods were woken a second time")
	}
}

func TestALostAllocatorIsReportedOnlyAfterTheGracePeriod(t *testing.T) {
	for name, state := range map[string]*State{
		"led":      {Leading: true, Ready: true, Identity: "a"},
		"stood by": {Ready: true, Message: "a-1 leads"},
	} {
		t.Run(name, func(t *testing.T) {
			follower := NewFollower(nil, time.Second, time.Hour, nil)
			follower.note(state, nil)
			gone := errors.New("it cannot be reached: no such file")
			if mustWake := follower.note(nil, gone); mustWake || follower.Health().Usable || !follower.Health().Quiet {
				t.Errorf("at once: %v %+v", mustWake, follower.Health())
			}
			follower.seen = time.Now().Add(-2 * time.Hour)
			if mustWake := follower.note(nil, gone); !mustWake || follower.Health().Quiet {
				t.Errorf("after the grace period: %v %+v", mustWake, follower.Health())
			}
		})
	}
}

type woken struct {
	pods []string
	all  bool
}

// runFollower runs a follower against a stub; the pods that the follower requeues arrive in the channel.
func runFollower(t *testing.T, server *stub.Server) <-chan woken {
	t.Helper()
	wakes := make(chan woken, 1000)
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	follower := NewFollower(client, 10*time.Millisecond, 0, func(pods []string, all bool) {
		select {
		case wakes <- woken{pods, all}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return wakes
}

func await(t *testing.T, wakes <-chan woken, wanted func(woken) bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case wake := <-wakes:
			if wanted(wake) {
				return
			}
		case <-deadline:
			t.Fatal("no such wake-up within a minute")
		}
	}
}

func wakesAll(wake woken) bool { return wake.all }

func TestPodsThatTheAllocatorNamesAreWoken(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	server.On("wake", stub.InTurn(stub.JSON(Wake{Seq: 7, Pods: []string{"team/train"}}), stub.Never))
	wakes := runFollower(t, server)
	await(t, wakes, func(wake woken) bool { return slices.Equal(wake.pods, []string{"team/train"}) })
}

func TestTheLongPollContinuesAfterTheLastSequenceNumber(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	var after atomic.Value
	server.On("wake", func(response http.ResponseWriter, request *http.Request) {
		if asked := request.URL.Query().Get("after"); asked != "0" {
			after.Store(asked)
			stub.JSON(Wake{Seq: 8, Pods: []string{"team/second"}})(response, request)
			return
		}
		stub.JSON(Wake{Seq: 7, Pods: []string{"team/first"}})(response, request)
	})
	await(t, runFollower(t, server), func(wake woken) bool { return slices.Contains(wake.pods, "team/second") })
	if asked := after.Load(); asked != "7" && asked != "8" {
		t.Errorf("asked for events after %v", asked)
	}
}

func TestASequenceThatStartsAgainWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	firstWake := stub.JSON(Wake{Seq: 70, Pods: []string{"team/first"}})
	server.On("wake", stub.InTurn(firstWake, stub.JSON(Wake{Seq: 2}), stub.Never))
	wakes := runFollower(t, server)
	await(t, wakes, func(wake woken) bool { return len(wake.pods) == 1 })
	await(t, wakes, wakesAll)
}

func TestAFailedLongPollWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	server.On("wake", stub.InTurn(
		stub.JSON(Wake{Seq: 3, Pods: []string{"team/first"}}),
		stub.Refusal(500, "a fault", ""),
		stub.JSON(Wake{Seq: 3}),
		stub.Never,
	))
	wakes := runFollower(t, server)
	await(t, wakes, func(wake woken) bool { return len(wake.pods) == 1 })
	await(t, wakes, wakesAll)
}

func TestALongPollWhoseConnectionBreaksWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	// If the second poll used a kept connection, net/http would repeat it, and the follower would not see the break.
	server.On("wake", stub.InTurn(stub.JSON(Wake{Seq: 1, Pods: []string{"team/first"}}), stub.Hangup, stub.Never))
	wakes := runFollower(t, server)
	await(t, wakes, func(wake woken) bool { return len(wake.pods) == 1 })
	await(t, wakes, wakesAll)
}

func TestAnAllocatorThatComesBackWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	polled := make(chan struct{}, 100)
	server.On("wake", func(response http.ResponseWriter, request *http.Request) {
		polled <- struct{}{}
		stub.Never(response, request)
	})
	wakes := runFollower(t, server)
	await(t, wakes, wakesAll)
	<-polled
	server.Stop()
	server.Start(t)
	await(t, wakes, wakesAll)
}
