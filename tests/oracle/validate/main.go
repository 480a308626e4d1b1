// Command validate says what the API server says about an object: it decodes, applies defaults and runs the create path
// of the registry (prepare, hand-written and declarative validation), and the status update path where there is a status.
package main

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"

	"drawbridge.dev/tests/oracle/lines"
)

type request struct {
	Object json.RawMessage `json:"object"`
	// Old makes it an update.
	Old json.RawMessage `json:"old,omitempty"`
	// Gates that differ from their defaults.
	Gates map[string]bool `json:"gates,omitempty"`
}

type cause struct {
	Field   string `json:"field"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

type answer struct {
	// Decode is why the object cannot be read at all.
	Decode string `json:"decode,omitempty"`
	// Strict is what strict field validation (kubectl's default) would say in addition.
	Strict []string `json:"strict,omitempty"`
	// Errors are why it is refused.
	Errors []cause `json:"errors"`
	// Object is the object as version v1 with defaults, if it can be read.
	Object json.RawMessage `json:"object,omitempty"`
}

const adminNamespace = "admin"

var (
	strictCodecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	client       = fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: adminNamespace, Labels: map[string]string{resource.DRAAdminNamespaceLabelKey: "true"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
	)
	claims = resourceclaim.NewStrategy(client.CoreV1().Namespaces(), everything{})
)

type everything struct{}

func (everything) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func (everything) ConditionsAwareAuthorize(context.Context, authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecision{}
}

func main() { lines.Serve(judge) }

func judge(r request) answer {
	if err := setGates(r.Gates); err != nil {
		panic(err)
	}
	a := answer{Errors: []cause{}}
	obj, gvk, err := decode(r.Object)
	if err != nil {
		a.Decode = err.Error()
		return a
	}
	if _, _, err := strictCodecs.UniversalDeserializer().Decode(r.Object, nil, nil); err != nil {
		a.Strict = strings.Split(err.Error(), ", ")
	}
	if encoded, err := encode(obj, gvk); err == nil {
		a.Object = encoded
	}
	if r.Old != nil {
		old, _, err := decode(r.Old)
		if err != nil {
			panic(err)
		}
		a.add(update(obj, old, gvk))
		return a
	}
	withStatus := obj.DeepCopyObject()
	a.add(create(obj, gvk))
	a.add(updateStatus(withStatus, gvk))
	return a
}

func (a *answer) add(err error) {
	if err == nil {
		return
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		a.Errors = append(a.Errors, cause{Type: "Other", Message: err.Error()})
		return
	}
	for _, c := range status.Status().Details.Causes {
		a.Errors = append(a.Errors, cause{Field: c.Field, Type: string(c.Type), Message: c.Message})
	}
}

// setGates sets these gates and gives all others their defaults, in one step because some depend on others.
func setGates(gates map[string]bool) error {
	wanted := map[string]bool{}
	for feature, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		value, set := gates[string(feature)]
		if !set {
			value = spec.Default
		}
		if utilfeature.DefaultFeatureGate.Enabled(feature) != value {
			wanted[string(feature)] = value
		}
	}
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
}

func decode(raw []byte) (runtime.Object, schema.GroupVersionKind, error) {
	obj, gvk, err := legacyscheme.Codecs.UniversalDecoder(resource.SchemeGroupVersion, schema.GroupVersion{Version: runtime.APIVersionInternal}).Decode(raw, nil, nil)
	if err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	return obj, *gvk, nil
}

// encode writes the object in the version v1 of its group.
func encode(obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	versioned, err := legacyscheme.Scheme.ConvertToVersion(obj, schema.GroupVersion{Group: gvk.Group, Version: "v1"})
	if err != nil {
		return nil, err
	}
	return json.Marshal(versioned)
}

func contextFor(obj runtime.Object, gvk schema.GroupVersionKind, namespaced bool, verb, subresource string) context.Context {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	namespace := ""
	if namespaced {
		if namespace = accessor.GetNamespace(); namespace == "" {
			namespace = metav1.NamespaceDefault
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	ctx := genericapirequest.WithNamespace(context.Background(), namespace)
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "admin"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIGroup:          gvk.Group,
		APIVersion:        gvk.Version,
		Resource:          plural.Resource,
		Subresource:       subresource,
		Namespace:         namespace,
		Name:              accessor.GetName(),
	})
}

type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func strategyFor(obj runtime.Object) strategy {
	switch obj.(type) {
	case *resource.ResourceSlice:
		return resourceslice.Strategy
	case *resource.DeviceClass:
		return deviceclass.Strategy
	case *resource.ResourceClaim:
		return claims
	case *resource.ResourceClaimTemplate:
		return resourceclaimtemplate.NewStrategy(client.CoreV1().Namespaces())
	case *resource.DeviceTaintRule:
		return devicetaintrule.Strategy
	}
	return pod.Strategy
}

func create(obj runtime.Object, gvk schema.GroupVersionKind) error {
	s := strategyFor(obj)
	ctx := contextFor(obj, gvk, s.NamespaceScoped(), "create", "")
	accessor, _ := meta.Accessor(obj)
	if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
		accessor.SetName(s.GenerateName(accessor.GetGenerateName()))
	}
	rest.FillObjectMetaSystemFields(accessor)
	return rest.BeforeCreate(s, ctx, obj)
}

// updateStatus asks whether the status could be written to the object if it had none before.
func updateStatus(obj runtime.Object, gvk schema.GroupVersionKind) error {
	old := obj.DeepCopyObject()
	var s rest.RESTUpdateStrategy
	switch o := old.(type) {
	case *resource.ResourceClaim:
		o.Status = resource.ResourceClaimStatus{}
		s = resourceclaim.NewStatusStrategy(claims)
	case *resource.DeviceTaintRule:
		o.Status = resource.DeviceTaintRuleStatus{}
		s = devicetaintrule.StatusStrategy
	default:
		return nil
	}
	return updateWith(s, obj, old, gvk, "status")
}

func update(obj, old runtime.Object, gvk schema.GroupVersionKind) error {
	return updateWith(strategyFor(obj), obj, old, gvk, "")
}

func updateWith(s rest.RESTUpdateStrategy, obj, old runtime.Object, gvk schema.GroupVersionKind, subresource string) error {
	for _, o := range []runtime.Object{obj, old} {
		accessor, _ := meta.Accessor(o)
		if accessor.GetName() == "" {
			accessor.SetName("generated")
		}
		accessor.SetResourceVersion("1")
		if accessor.GetUID() == "" {
			accessor.SetUID(types.UID("c2ffd8a0-7e3f-4b53-9b41-2a4d35c2b4a5"))
		}
		if s.NamespaceScoped() && accessor.GetNamespace() == "" {
			accessor.SetNamespace(metav1.NamespaceDefault)
		}
	}
	ctx := contextFor(obj, gvk, s.NamespaceScoped(), "update", subresource)
	return rest.BeforeUpdate(s, ctx, obj, old)
}
