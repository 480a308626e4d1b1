package sidecar

import (
	"errors"
	"fmt"
	"net/http"
)

// Unreachable means that there was no answer: the allocator does not run, or the connection broke.
type Unreachable struct{ Cause error }

func (e *Unreachable) Error() string {
	return fmt.Sprintf("it cannot be reached: %v", e.Cause)
}

func (e *Unreachable) Unwrap() error { return e.Cause }

// Late means that the deadline passed before the answer. Whether the allocator did anything is unknown.
type Late struct{ Call string }

func (e *Late) Error() string {
	return fmt.Sprintf("it did not answer %s in time", e.Call)
}

// Refusal is an answer with a status of 400 or more and the allocator's message.
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

// Nonsense is an answer that violates the protocol: too long, not JSON, or invalid values.
type Nonsense struct {
	Call  string
	Cause error
}

func (e *Nonsense) Error() string {
	return fmt.Sprintf("its answer to %s cannot be used: %v", e.Call, e.Cause)
}

func (e *Nonsense) Unwrap() error { return e.Cause }

// MayRecover reports whether the allocator as a whole is out of service, so that the pod should wait for its return.
func MayRecover(err error) bool {
	var unreachable *Unreachable
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Status == http.StatusServiceUnavailable
	}
	return errors.As(err, &unreachable)
}

// Outdated reports whether the cluster has changed since the question, so that the pod must be scheduled again.
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
