// Package stub is an allocator for tests: a real HTTP server on a unix socket, whose answers a test writes.
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

// Answer writes what the allocator says to one call.
type Answer func(http.ResponseWriter, *http.Request)

// Asked is one call that arrived.
type Asked struct {
	Call string
	Body map[string]any
}

// Server is a running stub. A call without its own answer gets 404, as from an allocator that does not know it.
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
	// A test's own directory has its name in it, which is too long for a socket.
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

// Stop breaks all connections and goes away, as a killed process does.
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

// On sets the answer to a call, by the last part of its path.
func (s *Server) On(call string, answer Answer) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answers[call] = answer
}

// Asked lists the calls so far, of one kind.
func (s *Server) Asked(call string) []Asked {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var found []Asked
	for _, one := range s.asked {
		if one.Call == call {
			found = append(found, one)
		}
	}
	return found
}

// Connections counts how many were opened.
func (s *Server) Connections() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.connections
}

func (s *Server) serve(response http.ResponseWriter, request *http.Request) {
	call := strings.TrimPrefix(request.URL.Path, "/plugin/v1/")
	one := Asked{Call: call}
	_ = json.NewDecoder(request.Body).Decode(&one.Body)
	s.mutex.Lock()
	s.asked = append(s.asked, one)
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

// Text answers with exactly this.
func Text(text string) Answer {
	return func(response http.ResponseWriter, _ *http.Request) { _, _ = response.Write([]byte(text)) }
}

// Never does not answer until the caller has gone.
func Never(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() }

// Trickle begins an answer and does not end it.
func Trickle(response http.ResponseWriter, request *http.Request) {
	_, _ = response.Write([]byte(`{"verdict":`))
	response.(http.Flusher).Flush()
	<-request.Context().Done()
}

// Flood answers with more and more, until the caller has gone.
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

// InTurn gives one answer after the other, and the last one from then on.
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
