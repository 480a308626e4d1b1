// Command metadata reads what a DRA driver tells containers about their devices, as programs in containers do: Kubernetes' own decoder and its validation.
package main

import (
	"encoding/json"
	"strings"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"drawbridge.dev/tests/oracle/lines"
)

type question struct {
	File string `json:"file"` // its content
}

type answer struct {
	Error           string              `json:"error,omitempty"` // it cannot be read
	Invalid         string              `json:"invalid,omitempty"`
	Claim           string              `json:"claim"`
	PodClaimName    string              `json:"podClaimName"`
	Requests        map[string][]string `json:"requests"`        // the devices of each
	AttributeCounts map[string]int      `json:"attributeCounts"` // how many attributes each device has
	Links           map[string]string   `json:"links"`           // the network interface of each device that is one
}

func main() { lines.Serve(read) }

func read(q question) answer {
	var told metadata.DeviceMetadata
	var invalid error
	decoder := json.NewDecoder(strings.NewReader(q.File))
	option := devicemetadata.DecodeMetadataWithValidationResult(&invalid)
	if err := devicemetadata.DecodeMetadataFromStream(decoder, &told, option); err != nil {
		return answer{Error: err.Error()}
	}
	a := answer{Claim: told.Namespace + "/" + told.Name, Requests: map[string][]string{}, AttributeCounts: map[string]int{}, Links: map[string]string{}}
	if invalid != nil {
		a.Invalid = invalid.Error()
	}
	if told.PodClaimName != nil {
		a.PodClaimName = *told.PodClaimName
	}
	for _, request := range told.Requests {
		for _, device := range request.Devices {
			a.Requests[request.Name] = append(a.Requests[request.Name], device.Name)
			a.AttributeCounts[device.Name] = len(device.Attributes)
			if device.NetworkData != nil {
				a.Links[device.Name] = device.NetworkData.InterfaceName
			}
		}
	}
	return a
}
