package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Act is what a function of a defaulter or a validator does, in the order of the fields.
type Act struct {
	// When says which objects are meant: what stands at a path (spec/text).
	When   map[string]any `json:"when"`
	Sleep  float64        `json:"sleep"`
	Panic  string         `json:"panic"`
	Set    []Setting      `json:"set"`
	Remove []string       `json:"remove"`
	// Report warns with what the request says: names of its fields.
	Report   []string `json:"report"`
	Warnings []string `json:"warnings"`
	Error    string   `json:"error"`
	// Status is the status of an API error.
	Status *metav1.Status `json:"status"`
	// Invalid are the mistakes of an object that is not valid.
	Invalid []Mistake `json:"invalid"`
	// Immutable are the paths that an update may not change.
	Immutable []string `json:"immutable"`
}

// Setting puts a value to a path.
type Setting struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Mistake is an error of a field.
type Mistake struct {
	Path      string   `json:"path"`
	Type      string   `json:"type"`
	Value     any      `json:"value"`
	Detail    string   `json:"detail"`
	Limit     int      `json:"limit"`
	Supported []string `json:"supported"`
}

func (m Mistake) err() *field.Error {
	path := fieldPath(m.Path)
	switch m.Type {
	case "invalid":
		return field.Invalid(path, m.Value, m.Detail)
	case "required":
		return field.Required(path, m.Detail)
	case "forbidden":
		return field.Forbidden(path, m.Detail)
	case "not supported":
		return field.NotSupported(path, m.Value, m.Supported)
	case "duplicate":
		return field.Duplicate(path, m.Value)
	case "too long":
		return field.TooLong(path, m.Value, m.Limit)
	case "too many":
		return field.TooMany(path, int(m.Value.(int64)), m.Limit)
	case "not found":
		return field.NotFound(path, m.Value)
	case "type invalid":
		return field.TypeInvalid(path, m.Value, m.Detail)
	case "internal":
		return field.InternalError(path, errors.New(m.Detail))
	default:
		panic("no such mistake: " + m.Type)
	}
}

// fieldPath reads spec/jobs/0/name; ~key is the key of a map.
func fieldPath(text string) *field.Path {
	var path *field.Path
	for _, part := range strings.Split(text, "/") {
		index := 0
		switch _, err := fmt.Sscanf(part, "%d", &index); {
		case err == nil:
			path = path.Index(index)
		case strings.HasPrefix(part, "~"):
			path = path.Key(part[1:])
		case path == nil:
			path = field.NewPath(part)
		default:
			path = path.Child(part)
		}
	}
	return path
}

func asMap(obj any) map[string]any {
	content, err := json.Marshal(obj)
	must(err)
	found := map[string]any{}
	must(json.Unmarshal(content, &found))
	return found
}

func get(obj map[string]any, path string) any {
	var value any = obj
	for _, key := range strings.Split(path, "/") {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = inner[key]
	}
	return value
}

func set(obj map[string]any, path string, value any) {
	keys := strings.Split(path, "/")
	for _, key := range keys[:len(keys)-1] {
		inner, ok := obj[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			obj[key] = inner
		}
		obj = inner
	}
	obj[keys[len(keys)-1]] = value
}

func remove(obj map[string]any, path string) {
	keys := strings.Split(path, "/")
	for _, key := range keys[:len(keys)-1] {
		inner, ok := obj[key].(map[string]any)
		if !ok {
			return
		}
		obj = inner
	}
	delete(obj, keys[len(keys)-1])
}

func meant(when map[string]any, obj map[string]any) bool {
	for path, value := range when {
		if fmt.Sprint(get(obj, path)) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// do carries it out, and changes the object if there is something to set or to remove.
func (a *Act) do(ctx context.Context, obj, old map[string]any) (admission.Warnings, error) {
	if a == nil || !meant(a.When, obj) {
		return nil, nil
	}
	time.Sleep(time.Duration(a.Sleep * float64(time.Second)))
	if a.Panic != "" {
		panic(a.Panic)
	}
	for _, setting := range a.Set {
		set(obj, setting.Path, setting.Value)
	}
	for _, path := range a.Remove {
		remove(obj, path)
	}
	warnings := append(admission.Warnings{}, a.Warnings...)
	if len(a.Report) > 0 {
		request, err := admission.RequestFromContext(ctx)
		must(err)
		warnings = append(warnings, report(request, a.Report))
	}
	return warnings, a.err(obj, old)
}

func (a *Act) err(obj, old map[string]any) error {
	var mistakes field.ErrorList
	for _, mistake := range a.Invalid {
		mistakes = append(mistakes, mistake.err())
	}
	for _, path := range a.Immutable {
		if !reflect.DeepEqual(get(obj, path), get(old, path)) {
			mistakes = append(mistakes, field.Forbidden(fieldPath(path), "may not change"))
		}
	}
	switch {
	case a.Error != "":
		return errors.New(a.Error)
	case a.Status != nil:
		return &apierrors.StatusError{ErrStatus: *a.Status}
	case len(mistakes) > 0:
		kind := schema.GroupKind{Group: Group, Kind: "Subject"}
		name, _ := get(obj, "metadata/name").(string)
		return apierrors.NewInvalid(kind, name, mistakes)
	default:
		return nil
	}
}

type defaulter[T runtime.Object] struct{ act *Act }

func (d defaulter[T]) Default(ctx context.Context, obj T) error {
	content := asMap(obj)
	if _, err := d.act.do(ctx, content, nil); err != nil {
		return err
	}
	fresh := reflect.New(reflect.TypeOf(obj).Elem())
	changed, err := json.Marshal(content)
	must(err)
	must(json.Unmarshal(changed, fresh.Interface()))
	reflect.ValueOf(obj).Elem().Set(fresh.Elem())
	return nil
}

type validator[T runtime.Object] struct{ validation *Validation }

func (v validator[T]) ValidateCreate(ctx context.Context, obj T) (admission.Warnings, error) {
	return v.validation.Create.do(ctx, asMap(obj), nil)
}

func (v validator[T]) ValidateUpdate(ctx context.Context, old, obj T) (admission.Warnings, error) {
	return v.validation.Update.do(ctx, asMap(obj), asMap(old))
}

func (v validator[T]) ValidateDelete(ctx context.Context, obj T) (admission.Warnings, error) {
	return v.validation.Delete.do(ctx, asMap(obj), nil)
}

// Handling is what a handler does that decides from the request alone.
type Handling struct {
	When    map[string]any `json:"when"`
	Sleep   float64        `json:"sleep"`
	Panic   string         `json:"panic"`
	Report  []string       `json:"report"`
	Denied  *string        `json:"denied"`
	Errored *Failure       `json:"errored"`
	// Patch are operations as they are.
	Patch []jsonpatch.JsonPatchOperation `json:"patch"`
	// Set is a patch as the comparison of two objects makes it.
	Set      []Setting         `json:"set"`
	Remove   []string          `json:"remove"`
	Message  string            `json:"message"`
	Warnings []string          `json:"warnings"`
	Audit    map[string]string `json:"audit"`
	Status   *metav1.Status    `json:"status"`
}

// Failure is an error with a code.
type Failure struct {
	Code    int32  `json:"code"`
	Message string `json:"message"`
}

// Handle answers a request.
func (h *Handling) Handle(_ context.Context, request admission.Request) admission.Response {
	raw := request.Object.Raw
	obj := map[string]any{}
	if len(raw) > 0 {
		must(json.Unmarshal(raw, &obj))
	}
	if !meant(h.When, obj) {
		return admission.Allowed("")
	}
	time.Sleep(time.Duration(h.Sleep * float64(time.Second)))
	if h.Panic != "" {
		panic(h.Panic)
	}
	return h.response(request, raw, obj)
}

func (h *Handling) response(request admission.Request, raw []byte, obj map[string]any) admission.Response {
	var response admission.Response
	switch {
	case len(h.Report) > 0:
		response = admission.Denied(report(request, h.Report))
	case h.Denied != nil:
		response = admission.Denied(*h.Denied)
	case h.Errored != nil:
		response = admission.Errored(h.Errored.Code, errors.New(h.Errored.Message))
	case h.Patch != nil:
		response = admission.Patched(h.Message, h.Patch...)
	case h.Set != nil || h.Remove != nil:
		for _, setting := range h.Set {
			set(obj, setting.Path, setting.Value)
		}
		for _, path := range h.Remove {
			remove(obj, path)
		}
		changed, err := json.Marshal(obj)
		must(err)
		response = admission.PatchResponseFromRaw(raw, changed)
	default:
		response = admission.Allowed(h.Message)
	}
	if h.Status != nil {
		response.Allowed = false
		response.Result = h.Status
	}
	response.AuditAnnotations = h.Audit
	return response.WithWarnings(h.Warnings...)
}

// report tells what a request says, so that both kits' reading of it can be compared.
func report(request admission.Request, names []string) string {
	var found []string
	for _, name := range names {
		found = append(found, fmt.Sprintf("%s=%s", name, fact(request, name)))
	}
	return strings.Join(found, ", ")
}

func fact(r admission.Request, name string) string {
	switch name {
	case "operation":
		return string(r.Operation)
	case "kind":
		return strings.Join([]string{r.Kind.Group, r.Kind.Version, r.Kind.Kind}, "/")
	case "resource":
		return strings.Join([]string{r.Resource.Group, r.Resource.Version, r.Resource.Resource}, "/")
	case "subresource":
		return r.SubResource
	case "requestKind":
		return strings.Join([]string{r.RequestKind.Group, r.RequestKind.Version, r.RequestKind.Kind}, "/")
	case "name":
		return r.Name
	case "namespace":
		return r.Namespace
	case "user":
		return r.UserInfo.Username
	case "groups":
		return strings.Join(r.UserInfo.Groups, "+")
	case "extra":
		return strings.Join(r.UserInfo.Extra["team"], "+")
	case "dryRun":
		return fmt.Sprint(r.DryRun != nil && *r.DryRun)
	case "object":
		return said(r.Object.Raw)
	case "oldObject":
		return said(r.OldObject.Raw)
	case "options":
		options := map[string]any{}
		if len(r.Options.Raw) > 0 {
			must(json.Unmarshal(r.Options.Raw, &options))
		}
		return fmt.Sprint(options["kind"])
	default:
		panic("a request has no " + name)
	}
}

// said is what tells one object from another: its kind and a text that it may have.
func said(raw []byte) string {
	if len(raw) == 0 {
		return "none"
	}
	obj := map[string]any{}
	must(json.Unmarshal(raw, &obj))
	text := get(obj, "spec/text")
	if text == nil {
		return fmt.Sprint(obj["kind"])
	}
	return fmt.Sprintf("%v %v", obj["kind"], text)
}
