// Package stub is an allocator for tests: a real HTTP server on a unix socket. The test defines its answers.
package stub

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Answer writes the allocator's answer to one call.
type Answer func(http.ResponseWriter, *http.Request)

// Asked is one call that the stub received.
type Asked struct {
	Call string
	Body map[string]any
}

// Server is a running stub. A call for which the test has set no answer gets 404, as from an allocator that does not support the call.
type Server struct {
	Socket string

	mutex       sync.Mutex
	answers     map[string]Answer
	asked       []Asked
	connections int
	server      *httptest.Server
}

// Serve starts a stub that ends with the test.
func Serve(t *testing.T) *Server {
	t.Helper()
	// t.TempDir contains the name of the test, so the path is too long for a socket.
	folder, err := os.MkdirTemp("", "stub")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	stub := &Server{Socket: filepath.Join(folder, "s"), answers: map[string]Answer{}}
	stub.Start(t)
	t.Cleanup(stub.Stop)
	return stub
}

// Start listens, for the first time or again after Stop.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mutex.Lock()
			s.connections++
			s.mutex.Unlock()
		}
	}
	server.Start()
	s.mutex.Lock()
	s.server = server
	s.mutex.Unlock()
}

// Stop closes the listener and breaks all connections, as if the process was killed.
func (s *Server) Stop() {
	s.mutex.Lock()
	server := s.server
	s.server = nil
	s.mutex.Unlock()
	if server != nil {
		_ = server.Listener.Close()
		server.CloseClientConnections()
		server.Close()
	}
}

// On sets the answer to a call. `call` is the last part of the call's path.
func (s *Server) On(call string, answer Answer) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answers[call] = answer
}

// Asked returns the calls of one kind that the stub has received so far.
func (s *Server) Asked(call string) []Asked {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var calls []Asked
	for _, received := range s.asked {
		if received.Call == call {
			calls = append(calls, received)
		}
	}
	return calls
}

// Connections returns the number of connections opened so far.
func (s *Server) Connections() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.connections
}

func (s *Server) serve(response http.ResponseWriter, request *http.Request) {
	call := strings.TrimPrefix(request.URL.Path, "/plugin/v1/")
	received := Asked{Call: call}
	_ = json.NewDecoder(request.Body).Decode(&received.Body)
	s.mutex.Lock()
	s.asked = append(s.asked, received)
	answer := s.answers[call]
	s.mutex.Unlock()
	if answer == nil {
		http.NotFound(response, request)
		return
	}
	answer(response, request)
}

// JSON answers with a value.
func JSON(value any) Answer { return Status(http.StatusOK, value) }

// Status answers with a status and a value.
func Status(status int, value any) Answer {
	return func(response http.ResponseWriter, _ *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		response.WriteHeader(status)
		_ = json.NewEncoder(response).Encode(value)
	}
}

// Refusal answers with a status, a sentence and a remedy.
func Refusal(status int, sentence, remedy string) Answer {
	return Status(status, map[string]string{"error": sentence, "remedy": remedy})
}

// Text answers with exactly this text.
func Text(text string) Answer {
	return func(response http.ResponseWriter, _ *http.Request) { _, _ = response.Write([]byte(text)) }
}

// Never gives no answer; it returns when the caller disconnects.
func Never(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() }

// Trickle begins an answer and does not end it.
func Trickle(response http.ResponseWriter, request *http.Request) {
	_, _ = response.Write([]byte(`{"verdict":`))
	response.(http.Flusher).Flush()
	<-request.Context().Done()
}

// Flood writes an endless answer until the caller disconnects.
func Flood(response http.ResponseWriter, request *http.Request) {
	spaces := []byte(strings.Repeat(" ", 1<<20))
	for request.Context().Err() == nil {
		if _, err := response.Write(spaces); err != nil {
			return
		}
	}
}

// Hangup closes the connection without an answer.
func Hangup(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// InTurn gives the answers one after another, then repeats the last one.
func InTurn(answers ...Answer) Answer {
	var mutex sync.Mutex
	return func(response http.ResponseWriter, request *http.Request) {
		mutex.Lock()
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		mutex.Unlock()
		answer(response, request)
	}
}
