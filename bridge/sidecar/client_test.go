package sidecar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drawbridge.dev/bridge/internal/stub"
)

var (
	pod     = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "u1"}}
	patient = Timeouts{Call: time.Minute, Commit: time.Minute, State: time.Minute}
	// A server that never answers is late at any deadline, so a short deadline makes no test depend on the speed of the machine.
	hasty = Timeouts{Call: 200 * time.Millisecond, Commit: 200 * time.Millisecond, State: 200 * time.Millisecond}
)

func clientOf(t *testing.T, place Place, timeouts Timeouts) *Client {
	t.Helper()
	client := New(place, timeouts)
	t.Cleanup(client.Close)
	return client
}

func isA[T error](err error) bool {
	var wanted T
	return errors.As(err, &wanted)
}

func TestAnAnswerIsDecodedAndUnknownFieldsAreIgnored(t *testing.T) {
	server := stub.Serve(t)
	server.On("prefilter", stub.Text(`{"verdict":"fits","token":"t","nodes":[{"name":"n1","score":40}],
		"message":"one node","reasons":[{"message":"no device","nodes":["n2"],"count":1}],"later":"unknown fields are fine"}`))
	answer, err := clientOf(t, Place{Socket: server.Socket}, patient).PreFilter(t.Context(), pod, nil, nil, Census{}, Supposition{})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Verdict != Fits || answer.Token != "t" || answer.Nodes[0] != (Node{"n1", 40}) || answer.Reasons[0].Count != 1 {
		t.Errorf("got %+v", answer)
	}
	asked := server.Asked("prefilter")[0].Body["pod"].(map[string]any)
	if name := asked["metadata"].(map[string]any)["name"]; name != "train" {
		t.Errorf("asked about %v", name)
	}
}

func TestAnAnswerThatBreaksTheProtocolIsAnError(t *testing.T) {
	for name, answer := range map[string]stub.Answer{
		"not JSON":                  stub.Text("<html>"),
		"nothing":                   stub.Text(""),
		"half of it":                stub.Text(`{"verdict":"fits"`),
		"something after it":        stub.Text(`{"verdict":"skip"}{"verdict":"fits"}`),
		"another type":              stub.Text(`{"verdict":["fits"]}`),
		"no verdict":                stub.Text(`{}`),
		"an unknown verdict":        stub.Text(`{"verdict":"perhaps"}`),
		"nodes without a token":     stub.Text(`{"verdict":"fits","nodes":[{"name":"n1","score":1}]}`),
		"others without a token":    stub.Text(`{"verdict":"fits","rest":{"fit":true}}`),
		"others above 100":          stub.Text(`{"verdict":"fits","token":"t","rest":{"fit":true,"score":101}}`),
		"a node without a name":     stub.Text(`{"verdict":"fits","token":"t","nodes":[{"score":1}]}`),
		"a score above 100":         stub.Text(`{"verdict":"fits","token":"t","nodes":[{"name":"n1","score":101}]}`),
		"a score below 0":           stub.Text(`{"verdict":"fits","token":"t","nodes":[{"name":"n1","score":-1}]}`),
		"a score that is not whole": stub.Text(`{"verdict":"fits","token":"t","nodes":[{"name":"n1","score":0.5}]}`),
		"more than is read":         stub.Flood,
	} {
		t.Run(name, func(t *testing.T) {
			server := stub.Serve(t)
			server.On("prefilter", answer)
			_, err := clientOf(t, Place{Socket: server.Socket}, patient).PreFilter(t.Context(), pod, nil, nil, Census{}, Supposition{})
			if !isA[*Nonsense](err) || MayRecover(err) || Outdated(err) {
				t.Errorf("got %v", err)
			}
			if calls := len(server.Asked("prefilter")); calls != 1 {
				t.Errorf("after a bad answer there were %d calls", calls)
			}
		})
	}
}

func TestAnInvalidReservationOrPreemptionIsAnError(t *testing.T) {
	server := stub.Serve(t)
	server.On("reserve", stub.Text(`{}`))
	server.On("postfilter", stub.Text(`{"victims":[{"name":"v"}]}`))
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	if _, err := client.Reserve(t.Context(), "t", "n1"); !isA[*Nonsense](err) {
		t.Errorf("a reservation without an id: %v", err)
	}
	if _, err := client.PostFilter(t.Context(), pod, []string{"n1"}); !isA[*Nonsense](err) {
		t.Errorf("victims without a node: %v", err)
	}
}

func TestACallWithoutAnAnswerBeforeTheDeadlineIsLate(t *testing.T) {
	for name, answer := range map[string]stub.Answer{"silence": stub.Never, "half an answer": stub.Trickle} {
		t.Run(name, func(t *testing.T) {
			server := stub.Serve(t)
			server.On("prefilter", answer)
			_, err := clientOf(t, Place{Socket: server.Socket}, hasty).PreFilter(t.Context(), pod, nil, nil, Census{}, Supposition{})
			if !isA[*Late](err) || MayRecover(err) {
				t.Errorf("got %v", err)
			}
			if calls := len(server.Asked("prefilter")); calls != 1 {
				t.Errorf("asked %d times: after a deadline the scheduler does not wait", calls)
			}
		})
	}
}

func TestACallEndsWhenItsContextIsCancelled(t *testing.T) {
	server := stub.Serve(t)
	gone := errors.New("enough nodes were found")
	ctx, cancel := context.WithCancelCause(t.Context())
	server.On("filter", func(response http.ResponseWriter, request *http.Request) {
		cancel(gone)
		stub.Never(response, request)
	})
	_, err := clientOf(t, Place{Socket: server.Socket}, patient).Filter(ctx, "t", "n1", nil, nil)
	if !errors.Is(err, gone) || MayRecover(err) {
		t.Errorf("got %v", err)
	}
}

func TestAnAllocatorThatIsNotThereIsUnreachable(t *testing.T) {
	_, err := clientOf(t, Place{Socket: filepath.Join(t.TempDir(), "none")}, patient).State(t.Context())
	if !isA[*Unreachable](err) || !MayRecover(err) {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "http://") {
		t.Errorf("the message contains an artificial URL: %v", err)
	}
}

func TestACallIsRepeatedOnceIfTheConnectionBreaks(t *testing.T) {
	server := stub.Serve(t)
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	calls := map[string]func() error{
		"prefilter": func() error {
			_, err := client.PreFilter(t.Context(), pod, nil, nil, Census{}, Supposition{})
			return err
		},
		"filter":    func() error { _, err := client.Filter(t.Context(), "t", "n", nil, nil); return err },
		"reserve":   func() error { _, err := client.Reserve(t.Context(), "t", "n"); return err },
		"unreserve": func() error { return client.Unreserve(t.Context(), "r") },
		"commit":    func() error { _, err := client.Commit(t.Context(), "r"); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			good := stub.Text(`{"verdict":"skip","reservation":"r","committed":true}`)
			server.On(name, stub.InTurn(stub.Hangup, good))
			if err := call(); err != nil {
				t.Errorf("after one hang-up: %v", err)
			}
			if times := len(server.Asked(name)); times != 2 {
				t.Errorf("asked %d times", times)
			}
			server.On(name, stub.Hangup)
			if err := call(); !isA[*Unreachable](err) {
				t.Errorf("after hang-ups only: %v", err)
			}
			if times := len(server.Asked(name)); times != 4 {
				t.Errorf("asked %d times", times)
			}
		})
	}
}

func TestPostFilterIsNeverRepeated(t *testing.T) {
	server := stub.Serve(t)
	server.On("postfilter", stub.Hangup)
	_, err := clientOf(t, Place{Socket: server.Socket}, patient).PostFilter(t.Context(), pod, []string{"n1"})
	if !isA[*Unreachable](err) {
		t.Errorf("got %v", err)
	}
	if calls := len(server.Asked("postfilter")); calls != 1 {
		t.Errorf("asked %d times", calls)
	}
}

func TestARefusalHasTheAllocatorsMessageAndRemedy(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	for name, row := range map[string]struct {
		answer             stub.Answer
		message            string
		recovers, outdated bool
	}{
		"in words":          {stub.Refusal(503, "not leading", "ask a-1"), "not leading: ask a-1", true, false},
		"without a remedy":  {stub.Refusal(409, "gpu-0 was taken", ""), "gpu-0 was taken", false, true},
		"a forgotten token": {stub.Refusal(410, "the token is not known", ""), "the token is not known", false, true},
		"not found":         {stub.Refusal(404, "no such token", ""), "no such token", false, true},
		"a wrong token":     {stub.Refusal(401, "who are you", "see tokenFile"), "who are you: see tokenFile", false, false},
		"without words":     {stub.Status(500, nil), "it answered reserve with status 500 (Internal Server Error)", false, false},
		"too many words":    {stub.Refusal(400, long, ""), strings.Repeat("ä", maxSentence) + "…", false, false},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			"it answered reserve with status 302 (Found)", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := stub.Serve(t)
			server.On("reserve", row.answer)
			_, err := clientOf(t, Place{Socket: server.Socket}, patient).Reserve(t.Context(), "t", "n1")
			if !isA[*Refusal](err) || err.Error() != row.message {
				t.Errorf("got %v", err)
			}
			if MayRecover(err) != row.recovers || Outdated(err) != row.outdated {
				t.Errorf("recovers %v, outdated %v", MayRecover(err), Outdated(err))
			}
		})
	}
}

func TestAnEndlessRefusalIsNotReadToTheEnd(t *testing.T) {
	server := stub.Serve(t)
	server.On("reserve", func(response http.ResponseWriter, request *http.Request) {
		response.WriteHeader(http.StatusInternalServerError)
		stub.Flood(response, request)
	})
	_, err := clientOf(t, Place{Socket: server.Socket}, patient).Reserve(t.Context(), "t", "n1")
	if !isA[*Nonsense](err) {
		t.Errorf("got %v", err)
	}
}

func TestTheTokenFileIsReadForEachCall(t *testing.T) {
	var mutex sync.Mutex
	var authorizations []string
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		mutex.Lock()
		authorizations = append(authorizations, request.Header.Get("Authorization"))
		mutex.Unlock()
		_, _ = response.Write([]byte(`{"leading":true,"ready":true}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	place := Place{Address: server.Listener.Addr().String(), TokenFile: file}
	client := clientOf(t, place, patient)
	if _, err := client.State(t.Context()); !isA[*Unreachable](err) || !strings.Contains(err.Error(), file) {
		t.Errorf("without the file: %v", err)
	}
	for _, token := range []string{"first\n", "second"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if state, err := client.State(t.Context()); err != nil || !state.Leading {
			t.Errorf("got %v, %v", state, err)
		}
	}
	if len(authorizations) != 2 || authorizations[0] != "Bearer first" || authorizations[1] != "Bearer second" {
		t.Errorf("seen %q", authorizations)
	}
}

func TestAProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	t.Setenv("http_proxy", "http://192.0.2.1:1")
	transport := New(Place{Address: "127.0.0.1:1"}, patient).questions.Transport.(*http.Transport)
	if transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

func TestOneConnectionServesManyCalls(t *testing.T) {
	server := stub.Serve(t)
	server.On("state", stub.JSON(State{Leading: true, Ready: true}))
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	for range 50 {
		if _, err := client.State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if opened := server.Connections(); opened != 1 {
		t.Errorf("%d connections for 50 calls", opened)
	}
}

func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	server := stub.Serve(t)
	server.On("reserve", func(response http.ResponseWriter, _ *http.Request) {
		stub.JSON(Reservation{ID: "r"})(response, nil)
	})
	server.On("filter", stub.JSON(Fit{Fits: true}))
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			if reservation, err := client.Reserve(t.Context(), "t", "n"); err != nil || reservation.ID != "r" {
				t.Errorf("got %v, %v", reservation, err)
			}
		})
		group.Go(func() {
			if fit, err := client.Filter(t.Context(), "t", "n", []*v1.Pod{pod}, nil); err != nil || !fit.Fits {
				t.Errorf("got %v, %v", fit, err)
			}
		})
	}
	group.Wait()
	for _, asked := range server.Asked("filter") {
		if asked.Body["remove"] == nil {
			t.Errorf("an empty list was left out: %v", asked.Body)
		}
	}
}

func TestAQuestionDoesNotQueueBehindCommits(t *testing.T) {
	server := stub.Serve(t)
	release := make(chan struct{})
	waiting := make(chan struct{}, 1000)
	server.On("commit", func(response http.ResponseWriter, request *http.Request) {
		waiting <- struct{}{}
		<-release
		stub.JSON(Commit{Committed: true})(response, request)
	})
	server.On("prefilter", stub.JSON(Answer{Verdict: Skip}))
	client := clientOf(t, Place{Socket: server.Socket}, patient)
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			if commit, err := client.Commit(t.Context(), "r"); err != nil || !commit.Committed {
				t.Errorf("got %v, %v", commit, err)
			}
		})
	}
	for range commitConnections {
		<-waiting
	}
	if _, err := client.PreFilter(t.Context(), pod, nil, nil, Census{}, Supposition{}); err != nil {
		t.Errorf("a question behind a thousand commits: %v", err)
	}
	close(release)
	group.Wait()
	if opened := server.Connections(); opened > commitConnections+questionConnections {
		t.Errorf("%d connections", opened)
	}
}
