// Command yaml decodes manifests the way kubectl does: which documents there are and what their scalars mean.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	// Op is "document" (one YAML document to JSON) or "stream" (as `kubectl -f` reads a file).
	Op   string `json:"op"`
	Text string `json:"text"`
}

type answer struct {
	Documents []json.RawMessage `json:"documents"`
	Error     string            `json:"error,omitempty"`
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	if r.Op == "document" {
		decoded, err := yaml.YAMLToJSON([]byte(r.Text))
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Documents: []json.RawMessage{decoded}}
	}
	var a answer
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(r.Text), 4096)
	for {
		var ext runtime.RawExtension
		err := decoder.Decode(&ext)
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.Error = err.Error()
			return a
		}
		if len(strings.TrimSpace(string(ext.Raw))) == 0 || string(ext.Raw) == "null" {
			continue
		}
		a.Documents = append(a.Documents, json.RawMessage(ext.Raw))
	}
}
