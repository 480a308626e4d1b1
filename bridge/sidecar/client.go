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
	maxSentence = 800 // an event holds 1,024 characters, and the scheduler adds a prefix
)

// Concurrent connections; further calls wait for a free connection until their deadline. The allocator accepts 256 in all.
const (
	questionConnections = 32
	commitConnections   = 128
)

// The long poll returns within 30 seconds when nothing happens.
const wakeTimeout = 45 * time.Second

// Place is where the allocator listens: a socket, or an address with a token in a file or with mutual TLS.
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

// Client calls the allocator. It keeps connections open, and is safe for concurrent use.
type Client struct {
	place    Place
	timeouts Timeouts
	base     string
	// Two clients, so that calls of the scheduling cycle do not queue behind commits. Thousands of commits may be in progress.
	questions *http.Client
	commits   *http.Client
	// For the long poll. It keeps no connections, because net/http repeats a GET when a kept connection breaks. That would
	// hide that the allocator was restarted.
	polls *http.Client
}

// New returns a client, which connects at the first call.
func New(place Place, timeouts Timeouts) *Client {
	dialer := &net.Dialer{Timeout: timeouts.Call}
	transport := &http.Transport{
		Proxy:              nil, // not even a proxy that the environment names
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
	client.questions = newHTTPClient(transport, questionConnections)
	client.commits = newHTTPClient(transport, commitConnections)
	withoutKeepAlive := transport.Clone()
	withoutKeepAlive.DisableKeepAlives = true
	client.polls = newHTTPClient(withoutKeepAlive, 1)
	return client
}

func newHTTPClient(template *http.Transport, connections int) *http.Client {
	transport := template.Clone()
	transport.MaxConnsPerHost = connections
	transport.MaxIdleConnsPerHost = connections
	useNoRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: useNoRedirect}
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

// PreFilter requests the verdict about a pod on all nodes. The census identifies the nodes that the scheduler knows, served are the pod's
// extended resources that a DeviceClass serves, and versions are the resourceVersions of its claims. A supposition is set only for a member of a group for which pods may be evicted.
func (c *Client) PreFilter(
	ctx context.Context, pod *v1.Pod, served []v1.ResourceName, versions []string, nodes Census, suppose Supposition,
) (*Answer, error) {
	answer := &Answer{}
	question := podQuestion{pod, served, versions, nodes, suppose}
	return answer, c.do(ctx, call{name: "prefilter", question: question, timeout: c.timeouts.Call, repeat: true}, answer)
}

// Filter repeats the question of a PreFilter for one node, as if pods were added or removed.
func (c *Client) Filter(ctx context.Context, token, node string, add, remove []*v1.Pod) (*Fit, error) {
	answer := &Fit{}
	question := filterQuestion{Token: token, Node: node, Add: orEmpty(add), Remove: orEmpty(remove)}
	return answer, c.do(ctx, call{name: "filter", question: question, timeout: c.timeouts.Call, repeat: true}, answer)
}

// Reserve reserves devices on a node for the pod of an earlier answer.
func (c *Client) Reserve(ctx context.Context, token, node string) (*Reservation, error) {
	answer := &Reservation{}
	request := call{name: "reserve", question: nodeQuestion{token, node}, timeout: c.timeouts.Call, repeat: true}
	return answer, c.do(ctx, request, answer)
}

// Unreserve releases a reservation.
func (c *Client) Unreserve(ctx context.Context, reservation string) error {
	question := reservationQuestion{reservation}
	return c.do(ctx, call{name: "unreserve", question: question, timeout: c.timeouts.Call, repeat: true}, &nothing{})
}

// UnreserveUnknown releases the devices that a call of Reserve without an answer may have reserved.
func (c *Client) UnreserveUnknown(ctx context.Context, token, node string) error {
	question := nodeQuestion{token, node}
	return c.do(ctx, call{name: "unreserve", question: question, timeout: c.timeouts.Call, repeat: true}, &nothing{})
}

// Commit writes a reservation into the claims. The caller repeats this call until all binding conditions are met.
func (c *Client) Commit(ctx context.Context, reservation string) (*Commit, error) {
	answer := &Commit{}
	request := call{name: "commit", question: reservationQuestion{reservation}, timeout: c.timeouts.Commit, repeat: true}
	request.through = c.commits
	return answer, c.do(ctx, request, answer)
}

// PostFilter makes the allocator choose and evict victims. The client never repeats this call, because it evicts pods.
func (c *Client) PostFilter(ctx context.Context, pod *v1.Pod, nodes []string) (*Preemption, error) {
	answer := &Preemption{}
	request := call{name: "postfilter", question: preemptionQuestion{pod, nodes}, timeout: c.timeouts.Call}
	return answer, c.do(ctx, request, answer)
}

// PostFilterGroup makes the allocator choose and evict victims for a group, each member of which has a node. The client never
// repeats this call either.
func (c *Client) PostFilterGroup(ctx context.Context, group []Member) (*Preemption, error) {
	answer := &Preemption{}
	request := call{name: "postfilter", question: groupQuestion{group}, timeout: c.timeouts.Call}
	return answer, c.do(ctx, request, answer)
}

// Wake waits until pods should be requeued, for up to half a minute.
func (c *Client) Wake(ctx context.Context, after int64) (*Wake, error) {
	answer := &Wake{}
	request := call{name: "wake?after=" + strconv.FormatInt(after, 10), timeout: wakeTimeout, through: c.polls}
	return answer, c.do(ctx, request, answer)
}

type call struct {
	name     string
	question any // nil for a GET
	timeout  time.Duration
	through  *http.Client // nil for the client for questions
	repeat   bool         // the call may be sent twice; a GET does not need this, because it is polled
}

type checked interface{ check() error }

func (c *Client) do(ctx context.Context, request call, answer checked) error {
	ctx, cancel := context.WithTimeout(ctx, request.timeout)
	defer cancel()
	var body []byte
	if request.question != nil {
		var err error
		if body, err = json.Marshal(request.question); err != nil {
			return fmt.Errorf("%s: the question cannot be encoded: %w", request.name, err)
		}
	}
	client := c.questions
	if request.through != nil {
		client = request.through
	}
	err := c.callOnce(ctx, client, request.name, body, answer)
	var unreachable *Unreachable
	if request.repeat && errors.As(err, &unreachable) && ctx.Err() == nil {
		// An allocator that was restarted has closed the kept connection.
		err = c.callOnce(ctx, client, request.name, body, answer)
	}
	return err
}

func (c *Client) callOnce(ctx context.Context, client *http.Client, name string, body []byte, answer checked) error {
	request, err := c.request(ctx, name, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return failure(ctx, name, err)
	}
	// If a body is longer than the limit, its rest is not read, and the connection is closed.
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
		// The file is read for each call, because the token may be renewed.
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
	// url.Error writes the URL before the cause, which is of no use in an event.
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &Unreachable{err}
}

func refusal(name string, status int, text []byte) error {
	var body struct {
		Error  string `json:"error"`
		Remedy string `json:"remedy"`
	}
	if json.Unmarshal(text, &body) != nil || body.Error == "" {
		body.Error = fmt.Sprintf("it answered %s with status %d (%s)", name, status, http.StatusText(status))
		body.Remedy = ""
	}
	return &Refusal{Status: status, Sentence: Shorten(body.Error), Remedy: Shorten(body.Remedy)}
}

// Shorten cuts a message of the allocator to a length that fits into an event.
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
