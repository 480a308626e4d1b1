package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	maxAnswer   = 16 << 20 // 5,000 nodes with reasons take less than 1 MiB
	maxRefusal  = 64 << 10
	maxSentence = 800 // an event holds 1,024 characters, and the scheduler writes something before it
)

// Connections at a time. The allocator accepts 256 in all; who finds none free waits for one, until its deadline.
const (
	questionConnections = 32
	commitConnections   = 128
)

// The long poll is answered within 30 seconds when nothing happens.
const wakeTimeout = 45 * time.Second

// Place says where the allocator listens: at a socket, or at an address with a token in a file, or with certificates on both sides.
type Place struct {
	Socket    string
	Address   string
	TokenFile string
	TLS       *TLS
}

// Timeouts are the deadlines of calls.
type Timeouts struct {
	Call   time.Duration // questions, reserve, unreserve
	Commit time.Duration // one call of commit, which writes to the API server
	State  time.Duration
}

// Client asks the allocator. It is safe for concurrent use and keeps connections open.
type Client struct {
	place    Place
	timeouts Timeouts
	base     string
	// Questions of the scheduling cycle do not queue behind commits, of which thousands may be under way.
	questions *http.Client
	commits   *http.Client
	// For the long poll. net/http sends a GET again by itself when a kept connection breaks, and that it broke is
	// what has to be known: the allocator was restarted.
	polls *http.Client
}

// New returns a client. It connects when it is first asked something.
func New(place Place, timeouts Timeouts) *Client {
	dialer := &net.Dialer{Timeout: timeouts.Call}
	transport := &http.Transport{
		// A proxy from the environment has nothing to do with a neighbour.
		Proxy:              nil,
		DialContext:        dialer.DialContext,
		IdleConnTimeout:    time.Minute,
		DisableCompression: true,
	}
	base := "http://" + place.Address
	if place.TLS != nil {
		base = "https://" + place.Address
		transport.DialTLSContext = place.TLS.dial(dialer)
	}
	if place.Socket != "" {
		base = "http://drawbridge"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", place.Socket)
		}
	}
	client := &Client{place: place, timeouts: timeouts, base: base}
	client.questions = over(transport, questionConnections)
	client.commits = over(transport, commitConnections)
	once := transport.Clone()
	once.DisableKeepAlives = true
	client.polls = over(once, 1)
	return client
}

func over(like *http.Transport, connections int) *http.Client {
	transport := like.Clone()
	transport.MaxConnsPerHost = connections
	transport.MaxIdleConnsPerHost = connections
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: stay}
}

// Close drops idle connections.
func (c *Client) Close() {
	c.questions.CloseIdleConnections()
	c.commits.CloseIdleConnections()
}

// State asks whether the allocator leads and is ready.
func (c *Client) State(ctx context.Context) (*State, error) {
	answer := &State{}
	return answer, c.do(ctx, call{name: "state", timeout: c.timeouts.State}, answer)
}

// PreFilter asks about a pod and all nodes, which are the ones that are counted. With a supposition it is about a
// member of a group for which room may be made.
func (c *Client) PreFilter(ctx context.Context, pod *v1.Pod, nodes Census, suppose Supposition) (*Answer, error) {
	answer := &Answer{}
	asked := call{name: "prefilter", question: podQuestion{pod, nodes, suppose}, timeout: c.timeouts.Call, repeat: true}
	return answer, c.do(ctx, asked, answer)
}

// Filter asks an earlier question again for one node, with pods added to the cluster or taken away.
func (c *Client) Filter(ctx context.Context, token, node string, add, remove []*v1.Pod) (*Fit, error) {
	answer := &Fit{}
	question := filterQuestion{Token: token, Node: node, Add: orEmpty(add), Remove: orEmpty(remove)}
	return answer, c.do(ctx, call{name: "filter", question: question, timeout: c.timeouts.Call, repeat: true}, answer)
}

// Reserve holds what an earlier answer found on a node.
func (c *Client) Reserve(ctx context.Context, token, node string) (*Reservation, error) {
	answer := &Reservation{}
	asked := call{name: "reserve", question: nodeQuestion{token, node}, timeout: c.timeouts.Call, repeat: true}
	return answer, c.do(ctx, asked, answer)
}

// Unreserve gives a reservation back.
func (c *Client) Unreserve(ctx context.Context, reservation string) error {
	question := reservationQuestion{reservation}
	return c.do(ctx, call{name: "unreserve", question: question, timeout: c.timeouts.Call, repeat: true}, &nothing{})
}

// UnreserveUnknown gives back what a reserve may have taken whose answer was lost.
func (c *Client) UnreserveUnknown(ctx context.Context, token, node string) error {
	question := nodeQuestion{token, node}
	return c.do(ctx, call{name: "unreserve", question: question, timeout: c.timeouts.Call, repeat: true}, &nothing{})
}

// Commit writes what was reserved into the claims. It is asked again until all conditions of binding are met.
func (c *Client) Commit(ctx context.Context, reservation string) (*Commit, error) {
	answer := &Commit{}
	asked := call{name: "commit", question: reservationQuestion{reservation}, timeout: c.timeouts.Commit, repeat: true}
	asked.through = c.commits
	return answer, c.do(ctx, asked, answer)
}

// PostFilter asks for victims. It is never sent twice, because the allocator evicts.
func (c *Client) PostFilter(ctx context.Context, pod *v1.Pod, nodes []string) (*Preemption, error) {
	answer := &Preemption{}
	asked := call{name: "postfilter", question: preemptionQuestion{pod, nodes}, timeout: c.timeouts.Call}
	return answer, c.do(ctx, asked, answer)
}

// PostFilterGroup asks for the victims of a group whose members have a node each. It is never sent twice either.
func (c *Client) PostFilterGroup(ctx context.Context, group []Member) (*Preemption, error) {
	answer := &Preemption{}
	asked := call{name: "postfilter", question: groupQuestion{group}, timeout: c.timeouts.Call}
	return answer, c.do(ctx, asked, answer)
}

// Wake waits until pods are worth another try, or for half a minute.
func (c *Client) Wake(ctx context.Context, after int64) (*Wake, error) {
	answer := &Wake{}
	asked := call{name: "wake?after=" + strconv.FormatInt(after, 10), timeout: wakeTimeout, through: c.polls}
	return answer, c.do(ctx, asked, answer)
}

type call struct {
	name     string
	question any // none: GET
	timeout  time.Duration
	through  *http.Client // none: the one for questions
	repeat   bool         // may be sent twice; what is a GET is asked again soon anyway
}

type checked interface{ check() error }

func (c *Client) do(ctx context.Context, asked call, answer checked) error {
	ctx, cancel := context.WithTimeout(ctx, asked.timeout)
	defer cancel()
	var body []byte
	if asked.question != nil {
		var err error
		if body, err = json.Marshal(asked.question); err != nil {
			return fmt.Errorf("%s: the question cannot be written: %w", asked.name, err)
		}
	}
	client := c.questions
	if asked.through != nil {
		client = asked.through
	}
	err := c.once(ctx, client, asked.name, body, answer)
	var unreachable *Unreachable
	if asked.repeat && errors.As(err, &unreachable) && ctx.Err() == nil {
		// A kept connection may have been closed by a sidecar that was restarted.
		err = c.once(ctx, client, asked.name, body, answer)
	}
	return err
}

func (c *Client) once(ctx context.Context, client *http.Client, name string, body []byte, answer checked) error {
	request, err := c.request(ctx, name, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return failure(ctx, name, err)
	}
	// What is left of a body is not read: the connection is closed instead.
	defer func() { _ = response.Body.Close() }()
	limit := int64(maxAnswer)
	if response.StatusCode >= http.StatusMultipleChoices {
		limit = maxRefusal
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return failure(ctx, name, err)
	}
	if int64(len(text)) > limit {
		return &Nonsense{name, fmt.Errorf("it is longer than %d bytes", limit)}
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return refusal(name, response.StatusCode, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return &Nonsense{name, err}
	}
	if err := answer.check(); err != nil {
		return &Nonsense{name, err}
	}
	return nil
}

func (c *Client) request(ctx context.Context, name string, body []byte) (*http.Request, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+"/plugin/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.place.TokenFile != "" {
		// Read each time, because the token may be renewed.
		token, err := os.ReadFile(c.place.TokenFile)
		if err != nil {
			return nil, &Unreachable{fmt.Errorf("its token cannot be read: %w", err)}
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return request, nil
}

func failure(ctx context.Context, name string, err error) error {
	var timeout net.Error
	late := errors.As(err, &timeout) && timeout.Timeout()
	if late || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Late{name}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The URL in front of the cause says nothing that a reader of an event needs.
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &Unreachable{err}
}

func refusal(name string, status int, text []byte) error {
	var said struct {
		Error  string `json:"error"`
		Remedy string `json:"remedy"`
	}
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = fmt.Sprintf("it answered %s with status %d (%s)", name, status, http.StatusText(status))
		said.Remedy = ""
	}
	return &Refusal{Status: status, Sentence: Shorten(said.Error), Remedy: Shorten(said.Remedy)}
}

// Shorten bounds a sentence of the allocator to what fits into an event.
func Shorten(sentence string) string {
	letters := []rune(sentence)
	if len(letters) <= maxSentence {
		return sentence
	}
	return string(letters[:maxSentence]) + "…"
}

func orEmpty(pods []*v1.Pod) []*v1.Pod {
	if pods == nil {
		return []*v1.Pod{}
	}
	return pods
}
