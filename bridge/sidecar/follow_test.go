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
		"leads from the start":        {{leads, nil, true, false, true}, {leads, nil, true, false, false}},
		"is away and comes back":      {{leads, nil, true, false, true}, {nil, broken, false, false, false}, {leads, nil, true, false, true}},
		"another one took over":       {{leads, nil, true, false, true}, {other, nil, true, false, true}},
		"stands by, then leads":       {{standby, nil, false, true, false}, {leads, nil, true, false, true}},
		"stands by and dies":          {{standby, nil, false, true, false}, {nil, broken, false, false, false}},
		"was never there: pods learn": {{nil, broken, false, false, true}, {nil, broken, false, false, false}},
		"is not ready yet":            {{warming, nil, false, false, true}, {leads, nil, true, false, true}},
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

func TestAMissedCallHasTheNextGoodStateWakeAllPods(t *testing.T) {
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

func TestAnAllocatorThatIsOnlyBeingStartedIsGivenTime(t *testing.T) {
	broken := errors.New("it cannot be reached: no such file")
	reading := &State{Message: "reads the cluster"}
	follower := NewFollower(nil, time.Second, time.Hour, nil)
	for _, answer := range []struct {
		state *State
		err   error
	}{{nil, broken}, {reading, nil}, {nil, broken}} {
		if follower.note(answer.state, answer.err) {
			t.Error("pods were woken to be told")
		}
		if health := follower.Health(); health.Usable || !health.Quiet || health.Message == "" {
			t.Errorf("while it starts: %+v", health)
		}
	}
	follower.seen = time.Now().Add(-2 * time.Hour)
	if !follower.note(nil, broken) {
		t.Error("it has had its time, and no pod was woken to be told")
	}
	if health := follower.Health(); health.Quiet {
		t.Errorf("after its time: %+v", health)
	}
	if follower.note(nil, broken) {
		t.Error("pods were woken a second time")
	}
}

func TestAnAllocatorThatWasReadyAndIsGoneIsToldOfOnceAnotherReplicaHadTimeToLead(t *testing.T) {
	for name, state := range map[string]*State{
		"led":      {Leading: true, Ready: true, Identity: "a"},
		"stood by": {Ready: true, Message: "a-1 leads"},
	} {
		t.Run(name, func(t *testing.T) {
			follower := NewFollower(nil, time.Second, time.Hour, nil)
			follower.note(state, nil)
			gone := errors.New("it cannot be reached: no such file")
			if told := follower.note(nil, gone); told || follower.Health().Usable || !follower.Health().Quiet {
				t.Errorf("at once: %v %+v", told, follower.Health())
			}
			follower.seen = time.Now().Add(-2 * time.Hour)
			if told := follower.note(nil, gone); !told || follower.Health().Quiet {
				t.Errorf("after its time: %v %+v", told, follower.Health())
			}
		})
	}
}

type woken struct {
	pods []string
	all  bool
}

// following runs a follower against a stub; the pods that the follower requeues arrive in the channel.
func following(t *testing.T, server *stub.Server) <-chan woken {
	t.Helper()
	heard := make(chan woken, 1000)
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	follower := NewFollower(client, 10*time.Millisecond, 0, func(pods []string, all bool) {
		select {
		case heard <- woken{pods, all}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); follower.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	return heard
}

func await(t *testing.T, heard <-chan woken, wanted func(woken) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case one := <-heard:
			if wanted(one) {
				return
			}
		case <-limit:
			t.Fatal("not heard within a minute")
		}
	}
}

func wakesAll(one woken) bool { return one.all }

func TestPodsThatTheAllocatorNamesAreWoken(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	server.On("wake", stub.InTurn(stub.JSON(Wake{Seq: 7, Pods: []string{"team/train"}}), stub.Never))
	heard := following(t, server)
	await(t, heard, func(one woken) bool { return slices.Equal(one.pods, []string{"team/train"}) })
}

func TestTheLongPollGoesOnFromWhatWasHeard(t *testing.T) {
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
	await(t, following(t, server), func(one woken) bool { return slices.Contains(one.pods, "team/second") })
	if asked := after.Load(); asked != "7" && asked != "8" {
		t.Errorf("asked for what came after %v", asked)
	}
}

func TestASequenceThatBeganAnewWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	heardFirst := stub.JSON(Wake{Seq: 70, Pods: []string{"team/first"}})
	server.On("wake", stub.InTurn(heardFirst, stub.JSON(Wake{Seq: 2}), stub.Never))
	heard := following(t, server)
	await(t, heard, func(one woken) bool { return len(one.pods) == 1 })
	await(t, heard, wakesAll)
}

func TestABrokenLongPollWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	server.On("wake", stub.InTurn(
		stub.JSON(Wake{Seq: 3, Pods: []string{"team/first"}}),
		stub.Refusal(500, "a fault", ""),
		stub.JSON(Wake{Seq: 3}),
		stub.Never,
	))
	heard := following(t, server)
	await(t, heard, func(one woken) bool { return len(one.pods) == 1 })
	await(t, heard, wakesAll)
}

func TestALongPollThatIsCutWakesAllPodsThoughEveryStateWasGood(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	// If the second poll used a kept connection, net/http would repeat it, and the follower would not see the break.
	server.On("wake", stub.InTurn(stub.JSON(Wake{Seq: 1, Pods: []string{"team/first"}}), stub.Hangup, stub.Never))
	heard := following(t, server)
	await(t, heard, func(one woken) bool { return len(one.pods) == 1 })
	await(t, heard, wakesAll)
}

func TestAnAllocatorThatComesBackWakesAllPods(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	polled := make(chan struct{}, 100)
	server.On("wake", func(response http.ResponseWriter, request *http.Request) {
		polled <- struct{}{}
		stub.Never(response, request)
	})
	heard := following(t, server)
	await(t, heard, wakesAll)
	<-polled
	server.Stop()
	server.Start(t)
	await(t, heard, wakesAll)
}
