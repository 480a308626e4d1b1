// Command quantity parses, prints, compares, adds and subtracts quantities and versions the way Kubernetes does.
package main

import (
	"math"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	// Op is "quantity" (A), "quantities" (A and B), "version" (A), "tolerant" (A), "versions" (A and B).
	Op string `json:"op"`
	A  string `json:"a"`
	B  string `json:"b"`
}

type answer struct {
	Error string `json:"error,omitempty"`

	// quantity
	Text      string   `json:"text,omitempty"`
	Format    string   `json:"format,omitempty"`
	Nano      string   `json:"nano,omitempty"`
	Value     int64    `json:"value"`
	Milli     int64    `json:"milli"`
	AsInt64   int64    `json:"asInt64"`
	IsInteger bool     `json:"isInteger"`
	Sign      int      `json:"sign"`
	Float     *float64 `json:"float"`

	// quantities
	Compare   int    `json:"compare"`
	Identical bool   `json:"identical"`
	Sum       string `json:"sum,omitempty"`
	SumInt    bool   `json:"sumInt"`
	Diff      string `json:"diff,omitempty"`
	DiffInt   bool   `json:"diffInt"`

	// version
	Major uint64 `json:"major"`
	Minor uint64 `json:"minor"`
	Patch uint64 `json:"patch"`
	Equal bool   `json:"equal"`
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	switch r.Op {
	case "quantity":
		return quantity(r.A)
	case "quantities":
		return quantities(r.A, r.B)
	case "version":
		v, err := semver.Parse(r.A)
		return version(v, err)
	case "tolerant":
		return tolerant(r.A)
	case "versions":
		return versions(r.A, r.B)
	}
	return answer{Error: "unknown op " + r.Op}
}

func quantity(text string) answer {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	a := answer{Format: string(q.Format), Value: q.Value(), Milli: q.MilliValue(), Sign: q.Sign()}
	if f := q.AsApproximateFloat64(); !math.IsInf(f, 0) && !math.IsNaN(f) {
		a.Float = &f
	}
	a.AsInt64, a.IsInteger = q.AsInt64()
	copied := q.DeepCopy()
	a.Nano = copied.AsDec().String()
	a.Text = q.String()
	return a
}

func quantities(left, right string) answer {
	p, err := resource.ParseQuantity(left)
	if err != nil {
		return answer{Error: err.Error()}
	}
	q, err := resource.ParseQuantity(right)
	if err != nil {
		return answer{Error: err.Error()}
	}
	a := answer{Compare: p.Cmp(q), Identical: p == q}
	sum, diff := p.DeepCopy(), p.DeepCopy()
	sum.Add(q)
	diff.Sub(q)
	_, a.SumInt = sum.AsInt64()
	_, a.DiffInt = diff.AsInt64()
	a.Sum, a.Diff = sum.String(), diff.String()
	return a
}

// tolerant reads a version as CEL's semver(text, true) does; the function behind it is not exported.
func tolerant(text string) answer {
	result, _, err := tolerantProgram.Eval(map[string]any{"text": text})
	if err != nil {
		return answer{Error: err.Error()}
	}
	return version(result.Value().(semver.Version), nil)
}

var tolerantProgram = func() cel.Program {
	env, err := cel.NewEnv(cel.Variable("text", cel.StringType), library.SemverLib(library.SemverVersion(1)))
	if err != nil {
		panic(err)
	}
	ast, issues := env.Compile("semver(text, true)")
	if issues.Err() != nil {
		panic(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		panic(err)
	}
	return program
}()

func version(v semver.Version, err error) answer {
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Text: v.String(), Major: v.Major, Minor: v.Minor, Patch: v.Patch}
}

func versions(left, right string) answer {
	p, err := semver.Parse(left)
	if err != nil {
		return answer{Error: err.Error()}
	}
	q, err := semver.Parse(right)
	if err != nil {
		return answer{Error: err.Error()}
	}
	equal := ref.Val(apiservercel.Semver{Version: p}).Equal(apiservercel.Semver{Version: q})
	return answer{Compare: p.Compare(q), Equal: equal == types.True}
}
