// Command cel says what Kubernetes makes of a CEL expression: does it compile, what may it cost, what does it answer.
package main

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"drawbridge.dev/tests/oracle/lines"
)

type device struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type request struct {
	Expr string `json:"expr"`
	// Env is "stored" (default: newest version, all feature variants on) or "new" (version n-1, gates as given).
	Env                  string   `json:"env"`
	ListAttributes       bool     `json:"listAttributes"`
	NoConsumableCapacity bool     `json:"noConsumableCapacity"`
	Derived              bool     `json:"derived"`
	Devices              []device `json:"devices"`
	CostLimit            *uint64  `json:"costLimit"`
	// Repeat asks for timing: evaluate the first device this often and report nanoseconds for one.
	Repeat int `json:"repeat"`
}

type outcome struct {
	Result bool    `json:"result"`
	Value  any     `json:"value,omitempty"`
	Error  string  `json:"error,omitempty"`
	Cost   *uint64 `json:"cost,omitempty"`
}

type answer struct {
	CompileError string    `json:"compileError,omitempty"`
	ErrorType    string    `json:"errorType,omitempty"`
	OutputType   string    `json:"outputType,omitempty"`
	MaxCost      uint64    `json:"maxCost"`
	Outcomes     []outcome `json:"outcomes,omitempty"`
	CompileNs    int64     `json:"compileNs"`
	EvalNs       float64   `json:"evalNs,omitempty"`
}

type compiler interface {
	CompileCELExpression(expression string, options dracel.Options) dracel.CompilationResult
}

// compilers are built once a feature set: building an environment takes longer than most expressions.
var compilers = map[dracel.Features]compiler{}

func compilerFor(features dracel.Features) compiler {
	c, ok := compilers[features]
	if !ok {
		c = dracel.GetCompiler(features)
		compilers[features] = c
	}
	return c
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	features := dracel.Features{EnableConsumableCapacity: !r.NoConsumableCapacity, EnableListTypeAttributes: r.ListAttributes}
	env := environment.StoredExpressions
	if r.Env == "new" {
		env = environment.NewExpressions
	}
	start := time.Now()
	compiled, panicked := compile(compilerFor(features), r.Expr, dracel.Options{EnvType: &env, CostLimit: r.CostLimit, DerivedAttribute: r.Derived})
	if panicked != nil {
		return answer{CompileError: fmt.Sprintf("panic: %v", panicked), ErrorType: "Panic"}
	}
	a := answer{MaxCost: compiled.MaxCost, CompileNs: time.Since(start).Nanoseconds()}
	if compiled.Error != nil {
		a.CompileError, a.ErrorType = compiled.Error.Detail, string(compiled.Error.Type)
		return a
	}
	a.OutputType = compiled.OutputType.String()
	for _, d := range r.Devices {
		a.Outcomes = append(a.Outcomes, evaluate(compiled, d, r.Derived))
	}
	if r.Repeat > 0 && len(r.Devices) > 0 {
		a.EvalNs = timed(compiled, r.Devices[0], r.Repeat)
	}
	return a
}

// compile survives expressions that make the compiler panic, such as a constant map with bytes for keys.
func compile(c compiler, expr string, options dracel.Options) (result dracel.CompilationResult, panicked any) {
	defer func() { panicked = recover() }()
	return c.CompileCELExpression(expr, options), nil
}

// evaluate has no time limit: the cost limit bounds the work, and on a busy machine a limit of seconds would end dear expressions.
func evaluate(compiled dracel.CompilationResult, d device, derived bool) outcome {
	ctx := context.Background()
	device, err := converted(d)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	if derived {
		value, details, err := compiled.EvaluateDerivedAttribute(ctx, device)
		o := outcome{}
		if details != nil {
			o.Cost = details.ActualCost()
		}
		if err != nil {
			o.Error = err.Error()
		} else {
			o.Value = value
		}
		return o
	}
	result, details, err := compiled.DeviceMatches(ctx, device)
	o := outcome{Result: result}
	if details != nil {
		o.Cost = details.ActualCost()
	}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

func timed(compiled dracel.CompilationResult, d device, repeat int) float64 {
	ctx := context.Background()
	device, _ := converted(d)
	start := time.Now()
	for range repeat {
		_, _, _ = compiled.DeviceMatches(ctx, device)
	}
	return float64(time.Since(start).Nanoseconds()) / float64(repeat)
}
