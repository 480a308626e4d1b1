// Command condition says what an API server makes of a webhook's match conditions: is this object's webhook called, and what did it cost to say so.
package main

import (
	"context"
	"encoding/json"
	goruntime "runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	Expression string            `json:"expression"`
	Resource   string            `json:"resource"`  // of the group, version and kind that the objects have
	Operation  string            `json:"operation"` // CREATE or UPDATE
	Objects    []json.RawMessage `json:"objects"`
	// Repeat asks for timing: judge the first object this often and report nanoseconds and allocations for one.
	Repeat int `json:"repeat"`
}

type outcome struct {
	Called bool   `json:"called"`
	Error  string `json:"error,omitempty"`
	Cost   int64  `json:"cost"` // of the limit that all conditions of a webhook share
}

type answer struct {
	CompileError string    `json:"compileError,omitempty"`
	Outcomes     []outcome `json:"outcomes"`
	EvalNs       float64   `json:"evalNs,omitempty"`
	Allocations  float64   `json:"allocations,omitempty"` // for one
}

var compiler = cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))

func main() { lines.Serve(judge) }

func judge(r request) answer {
	condition := &matchconditions.MatchCondition{Name: "asked", Expression: r.Expression}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiled := compiler.CompileCondition([]cel.ExpressionAccessor{condition}, options, environment.StoredExpressions)
	a := answer{Outcomes: []outcome{}}
	for _, problem := range compiled.CompilationErrors() {
		a.CompileError = problem.Error()
		return a
	}
	for i, raw := range r.Objects {
		attributes, err := read(raw, r)
		if err != nil {
			panic(err)
		}
		a.Outcomes = append(a.Outcomes, evaluate(compiled, attributes))
		if i == 0 && r.Repeat > 0 {
			a.EvalNs, a.Allocations = timed(compiled, attributes, r.Repeat)
		}
	}
	return a
}

// read makes of an object what admission hands to conditions.
func read(raw []byte, r request) (admission.Attributes, error) {
	object, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	gvr := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: r.Resource}
	var old runtime.Object
	if r.Operation == "UPDATE" {
		old = object
	}
	account := &user.DefaultInfo{Name: "user"}
	return admission.NewAttributesRecord(object, old, *gvk, "ns", "a", gvr, "", admission.Operation(r.Operation), &metav1.CreateOptions{}, false, account), nil
}

// once is what a webhook's matcher does: nothing that one evaluation has unfolded is there for the next.
func once(compiled cel.ConditionEvaluator, attributes admission.Attributes) ([]cel.EvaluationResult, int64, error) {
	versioned := &admission.VersionedAttributes{
		Attributes:         attributes,
		VersionedObject:    admission.NewLazyObject(attributes.GetObject()),
		VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
		VersionedKind:      attributes.GetKind(),
	}
	question := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(attributes.GetResource()), metav1.GroupVersionKind(attributes.GetKind()))
	return compiled.ForInput(context.Background(), versioned, question, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
}

func evaluate(compiled cel.ConditionEvaluator, attributes admission.Attributes) outcome {
	results, left, err := once(compiled, attributes)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	o := outcome{Cost: celconfig.RuntimeCELCostBudgetMatchConditions - left}
	if results[0].Error != nil {
		o.Error = results[0].Error.Error()
		return o
	}
	o.Called, _ = results[0].EvalResult.Value().(bool)
	return o
}

func timed(compiled cel.ConditionEvaluator, attributes admission.Attributes, repeat int) (nanoseconds, allocations float64) {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	start := time.Now()
	for range repeat {
		_, _, _ = once(compiled, attributes)
	}
	nanoseconds = float64(time.Since(start).Nanoseconds()) / float64(repeat)
	goruntime.ReadMemStats(&after)
	return nanoseconds, float64(after.Mallocs-before.Mallocs) / float64(repeat)
}
