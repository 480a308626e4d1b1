package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.dev/bridge/internal/stub"
	"drawbridge.dev/bridge/sidecar"
)

// answerForms is one answer of the allocator in two forms: with all node names, and without the names of the largest group of nodes.
// tests/allocator/service/test_answers.py writes and verifies the file.
type answerForms struct {
	Nodes []string       `json:"nodes"`
	Named sidecar.Answer `json:"named"`
	Short sidecar.Answer `json:"short"`
}

// outcome is all that the scheduler learns from an answer.
type outcome struct {
	code    fwk.Code
	message string
	nodes   string
}

func TestAShortAnswerHasTheSameOutcomeForEachNodeAsAnAnswerWithAllNames(t *testing.T) {
	text, err := os.ReadFile("testdata/answers.json")
	if err != nil {
		t.Fatal(err)
	}
	var answers []answerForms
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatal(err)
	}
	plugin, w, server := newWorld(t, "")
	everywhere := 0
	for at, answer := range answers {
		infos := make([]fwk.NodeInfo, 0, len(answer.Nodes))
		for _, name := range answer.Nodes {
			infos = append(infos, node(name))
		}
		named, _ := outcomeOf(t, plugin, w, server, answer.Named, infos)
		short, all := outcomeOf(t, plugin, w, server, answer.Short, infos)
		if named != short {
			t.Errorf("answer %d: with all names %+v, without %+v", at, named, short)
		}
		if all {
			everywhere++
		}
	}
	if len(answers) < 30 || everywhere == 0 {
		t.Errorf("of %d answers %d are about nodes that all fit", len(answers), everywhere)
	}
}

// outcomeOf returns what the scheduler learns from an answer, and whether PreFilter keeps all nodes without a list.
func outcomeOf(
	t *testing.T, plugin *Plugin, w *world, server *stub.Server, answer sidecar.Answer, infos []fwk.NodeInfo,
) (outcome, bool) {
	t.Helper()
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.JSON(answer))
	state, me := &cycleState{}, pod("p", "gpu")
	result, status := plugin.PreFilter(t.Context(), state, me, infos)
	all := status.IsSuccess() && result.AllNodes()
	var nodes string
	for _, info := range infos {
		name := info.Node().Name
		kept := status.IsSuccess() && (all || result.NodeNames.Has(name))
		filtered := plugin.Filter(t.Context(), state, me, info)
		score, _ := plugin.Score(t.Context(), state, me, info)
		nodes += fmt.Sprintln(name, kept, filtered.Code(), filtered.Message(), score)
	}
	return outcome{status.Code(), status.Message(), nodes}, all
}

func TestTheCensusInAQuestionDoesNotDependOnTheOrderOfNodes(t *testing.T) {
	plugin, w, server := newWorld(t, "")
	w.addClaims(t, claim("gpu", "gpus"))
	server.On("prefilter", stub.JSON(full))
	for _, infos := range [][]fwk.NodeInfo{{node("n1"), node("n2")}, {node("n2"), node("n1")}, nil} {
		plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), infos)
	}
	// The sum of 0xeb7954ec and 0x72700556, which zlib.crc32 of Python returns for these names.
	for at, wanted := range []string{"map[count:2 sum:5.870541378e+09]", "map[count:2 sum:5.870541378e+09]", "map[count:0 sum:0]"} {
		if asked := fmt.Sprint(server.Asked("prefilter")[at].Body["nodes"]); asked != wanted {
			t.Errorf("asked about %s", asked)
		}
	}
}

func TestPreFilterKeepsUnnamedNodesThatFit(t *testing.T) {
	infos := []fwk.NodeInfo{node("n1"), node("n2"), node("n3"), node("n4")}
	but := []sidecar.Reason{{Message: "no free GPU", Nodes: []string{"n3"}, Count: 1}}
	for name, row := range map[string]struct {
		answer sidecar.Answer
		nodes  []string // nil: all nodes
	}{
		"all nodes are equal":    {sidecar.Answer{Rest: &sidecar.Rest{Fit: true, Score: 7}}, nil},
		"all nodes but one fit":  {sidecar.Answer{Rest: &sidecar.Rest{Fit: true}, Reasons: but}, []string{"n1", "n2", "n4"}},
		"only one node fits":     {sidecar.Answer{Rest: &sidecar.Rest{Message: "full"}, Nodes: fits.Nodes[:1]}, []string{"n1"}},
		"two nodes score higher": {sidecar.Answer{Rest: &sidecar.Rest{Fit: true}, Nodes: fits.Nodes}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, w, server := newWorld(t, "")
			w.addClaims(t, claim("gpu", "gpus"))
			row.answer.Verdict, row.answer.Token = sidecar.Fits, "t"
			server.On("prefilter", stub.JSON(row.answer))
			result, status := plugin.PreFilter(t.Context(), &cycleState{}, pod("p", "gpu"), infos)
			if !status.IsSuccess() || result.AllNodes() != (row.nodes == nil) || !result.NodeNames.HasAll(row.nodes...) ||
				len(result.NodeNames) != len(row.nodes) {
				t.Errorf("got %v %v", status, result)
			}
		})
	}
}

// BenchmarkAnswer measures the cost of an answer in PreFilter, with the names of all nodes and with none.
func BenchmarkAnswer(b *testing.B) {
	for _, nodes := range []int{500, 1000} {
		long := sidecar.Answer{Verdict: sidecar.Fits, Token: "t"}
		infos := make([]fwk.NodeInfo, 0, nodes)
		for at := range nodes {
			name := fmt.Sprintf("node-%d", at)
			long.Nodes = append(long.Nodes, sidecar.Node{Name: name})
			infos = append(infos, node(name))
		}
		short := sidecar.Answer{Verdict: sidecar.Fits, Token: "t", Rest: &sidecar.Rest{Fit: true}}
		for form, answer := range map[string]sidecar.Answer{"named": long, "short": short} {
			text, err := json.Marshal(answer)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s-%d", form, nodes), func(b *testing.B) { readAll(b, text, infos) })
		}
	}
}

func readAll(b *testing.B, text []byte, infos []fwk.NodeInfo) {
	b.ReportAllocs()
	for b.Loop() {
		answer := &sidecar.Answer{}
		if err := json.Unmarshal(text, answer); err != nil {
			b.Fatal(err)
		}
		attempt := newCycle(answer)
		result, _ := attempt.preFilterResult(infos)
		var every *fwk.PreFilterResult
		if merged := every.Merge(result); !merged.AllNodes() && len(merged.NodeNames) != len(infos) {
			b.Fatal("nodes are missing")
		}
		if censusOf(infos).Count != len(infos) {
			b.Fatal("nodes were not counted")
		}
	}
}
