// Package sidecar is the client of the allocator: HTTP/1.1 and JSON over a unix socket, loopback or TLS. It has the calls,
// their deadlines and the validation of answers. It is not a Kubernetes client, and it decides nothing.
package sidecar

import (
	"fmt"
	"hash/crc32"
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State tells whether the allocator is usable.
type State struct {
	Leading  bool   `json:"leading"`
	Ready    bool   `json:"ready"`
	Identity string `json:"identity"`
	Message  string `json:"message"` // why the allocator is not usable
}

// Verdict is the allocator's decision about a pod on all nodes.
type Verdict string

// The verdicts of the protocol.
const (
	Fits      Verdict = "fits"      // the pod fits on the nodes of the answer
	Full      Verdict = "full"      // the pod would fit if devices in use were free
	Never     Verdict = "never"     // the pod would not fit even if all devices were free
	Skip      Verdict = "skip"      // the pod requests no devices
	Undecided Verdict = "undecided" // the allocator ran out of time
	Waiting   Verdict = "waiting"   // an object that the claims need does not exist yet
)

// Node is a node that fits, with a score from 0 to 100.
type Node struct {
	Name  string `json:"name"`
	Score int64  `json:"score"`
}

// Reason tells why some nodes do not fit.
type Reason struct {
	Message string   `json:"message"`
	Nodes   []string `json:"nodes"`
	Count   int      `json:"count"`
}

// Rest applies to all nodes that an answer does not name. They all fit with this score, or none of them fits for this reason.
type Rest struct {
	Fit     bool   `json:"fit"`
	Score   int64  `json:"score"`
	Message string `json:"message"`
}

// Answer is the answer for a pod on all nodes. Without Rest, a node that is not named does not fit.
type Answer struct {
	Verdict Verdict  `json:"verdict"`
	Token   string   `json:"token"`
	Nodes   []Node   `json:"nodes"`
	Message string   `json:"message"`
	Reasons []Reason `json:"reasons"`
	Rest    *Rest    `json:"rest,omitempty"`
}

func (a *Answer) check() error {
	switch a.Verdict {
	case Fits, Full, Never, Skip, Undecided, Waiting:
	default:
		return fmt.Errorf("its verdict is %q, which is not in the protocol", a.Verdict)
	}
	others := a.Rest != nil && a.Rest.Fit
	if (others || len(a.Nodes) > 0) && a.Token == "" {
		return fmt.Errorf("it has nodes without a token to reserve them with")
	}
	if others && outOfRange(a.Rest.Score) {
		return fmt.Errorf("its other nodes have the score %d, which is not from 0 to 100", a.Rest.Score)
	}
	for _, node := range a.Nodes {
		if node.Name == "" {
			return fmt.Errorf("one of its nodes has no name")
		}
		if outOfRange(node.Score) {
			return fmt.Errorf("node %s has the score %d, which is not from 0 to 100", node.Name, node.Score)
		}
	}
	return nil
}

func outOfRange(score int64) bool { return score < 0 || score > 100 }

// Census identifies the nodes that the scheduler knows by their number and the sum of their names' CRC-32. If the
// allocator knows the same nodes, its answer need not name all of them.
type Census struct {
	Count int    `json:"count"`
	Sum   uint64 `json:"sum"`
}

// CensusOf returns the census of nodes, which does not depend on their order.
func CensusOf(names iter.Seq[string]) Census {
	census := Census{}
	var letters []byte
	for name := range names {
		letters = append(letters[:0], name...)
		census.Count++
		census.Sum += uint64(crc32.ChecksumIEEE(letters))
	}
	return census
}

// Fit is the answer for one node, as if other pods were added or removed.
type Fit struct {
	Fits    bool   `json:"fits"`
	Message string `json:"message"`
}

func (*Fit) check() error { return nil }

// Reservation reserves devices for a pod on a node until it is committed, released or expired.
type Reservation struct {
	ID             string `json:"reservation"`
	ExpiresSeconds int64  `json:"expiresSeconds"`
	Unready        bool   `json:"unready"` // devices have to be made ready before the pod is bound
}

func (r *Reservation) check() error {
	if r.ID == "" {
		return fmt.Errorf("it has no reservation")
	}
	return nil
}

// Commit reports whether the claims are written and their devices are ready. If not, Message says what the commit waits for.
type Commit struct {
	Committed bool   `json:"committed"`
	Message   string `json:"message"`
	// ResourceVersion is the only version of the pod that may be bound; "" for any version. The allocator sets it if the pod's status
	// may soon name another claim.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Resources are the pod's extended resources that the written claims request.
	Resources []v1.ResourceName `json:"resources,omitempty"`
}

func (*Commit) check() error { return nil }

// Victim is a pod that the allocator evicts.
type Victim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Nomination is the node on which a member of a group will fit.
type Nomination struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
}

// Preemption names the node where the pod, or each member of the group, will fit once the victims are deleted.
type Preemption struct {
	NominatedNode string       `json:"nominatedNode,omitempty"`
	Nominations   []Nomination `json:"nominations,omitempty"`
	Victims       []Victim     `json:"victims"`
	Message       string       `json:"message"`
}

func (p *Preemption) check() error {
	if len(p.Victims) > 0 && p.NominatedNode == "" && len(p.Nominations) == 0 {
		return fmt.Errorf("it names victims without a node")
	}
	return nil
}

// Wake names the pods to requeue.
type Wake struct {
	Seq  int64    `json:"seq"`
	Pods []string `json:"pods"` // namespace/name
	All  bool     `json:"all"`
}

func (*Wake) check() error { return nil }

func (*State) check() error { return nil }

type nothing struct{}

func (*nothing) check() error { return nil }

// Supposition makes the allocator answer as if pods below a priority were deleted. The zero value supposes nothing.
type Supposition struct {
	Suppose string `json:"suppose,omitempty"` // a unique name of the supposition
	Below   *int64 `json:"below,omitempty"`
}

type podQuestion struct {
	Pod           *v1.Pod           `json:"pod"`
	Served        []v1.ResourceName `json:"served,omitempty"`
	ClaimVersions []string          `json:"claimVersions,omitempty"`
	Nodes         Census            `json:"nodes"`
	Supposition
}

type filterQuestion struct {
	Token  string    `json:"token"`
	Node   string    `json:"node"`
	Add    []*v1.Pod `json:"add"`
	Remove []*v1.Pod `json:"remove"`
}

type nodeQuestion struct {
	Token string `json:"token"`
	Node  string `json:"node"`
}

type reservationQuestion struct {
	Reservation string `json:"reservation"`
}

type preemptionQuestion struct {
	Pod   *v1.Pod  `json:"pod"`
	Nodes []string `json:"nodes"`
}

// Member is a pod of a group and its intended node.
type Member struct {
	Pod  *v1.Pod `json:"pod"`
	Node string  `json:"node"`
}

type groupQuestion struct {
	Group []Member `json:"group"`
}
