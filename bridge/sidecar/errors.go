package sidecar

import (
	"errors"
	"fmt"
	"net/http"
)

// Unreachable means that no answer came: the allocator is not there, or the connection broke.
type Unreachable struct{ Cause error }

func (e *Unreachable) Error() string {
	return fmt.Sprintf("it cannot be reached: %v", e.Cause)
}

func (e *Unreachable) Unwrap() error { return e.Cause }

// Late means that the deadline came before the answer. Whether the allocator did anything is unknown.
type Late struct{ Call string }

func (e *Late) Error() string {
	return fmt.Sprintf("it did not answer %s in time", e.Call)
}

// Refusal is an answer with a status of 400 or more, in the allocator's own words.
type Refusal struct {
	Status   int
	Sentence string
	Remedy   string
}

func (e *Refusal) Error() string {
	if e.Remedy == "" {
		return e.Sentence
	}
	return e.Sentence + ": " + e.Remedy
}

// Nonsense is an answer that breaks the protocol: too long, not JSON, or impossible values.
type Nonsense struct {
	Call  string
	Cause error
}

func (e *Nonsense) Error() string {
	return fmt.Sprintf("its answer to %s cannot be used: %v", e.Call, e.Cause)
}

func (e *Nonsense) Unwrap() error { return e.Cause }

// MayRecover tells whether the allocator as a whole is out of service, so that its return is what a pod waits for.
func MayRecover(err error) bool {
	var unreachable *Unreachable
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Status == http.StatusServiceUnavailable
	}
	return errors.As(err, &unreachable)
}

// Outdated tells whether the cluster has moved on since the question: the pod has to be decided again.
func Outdated(err error) bool {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Status {
	case http.StatusConflict, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}
