// Command prune says what the API server keeps of a custom object, by its own pruning of structural schemas.
package main

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	Schema v1.JSONSchemaProps `json:"schema"`
	Object map[string]any     `json:"object"`
}

type answer struct {
	Error string         `json:"error,omitempty"`
	Kept  map[string]any `json:"kept,omitempty"`
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	var internal apiextensions.JSONSchemaProps
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&r.Schema, &internal, nil); err != nil {
		return answer{Error: err.Error()}
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		return answer{Error: err.Error()}
	}
	pruning.Prune(r.Object, structural, true)
	return answer{Kept: r.Object}
}
