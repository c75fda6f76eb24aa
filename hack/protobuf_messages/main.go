// Prints how Kubernetes' built-in kinds are written as protobuf: the numbers of their fields and what
// is in them, read off the Go types. Run by ../protobuf_messages.py, which tells the form.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Fields are by number: the name in JSON, empty for one whose fields stand in its place, what the
// value is, and whether a zero is left out of JSON.
type Fields map[string][3]any

// Output is what is printed.
type Output struct {
	Kinds    [][4]string       `json:"kinds"`
	Messages map[string]Fields `json:"messages"`
}

var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "json",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "schemaorarray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "schemaorbool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
}

var released = regexp.MustCompile(`^v\d+$`)

func main() {
	known := scheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	out := Output{Messages: map[string]Fields{}}
	for gvk, t := range known.AllKnownTypes() {
		if released.MatchString(gvk.Version) {
			collect(t, out.Messages)
			out.Kinds = append(out.Kinds, [4]string{gvk.Group, gvk.Version, gvk.Kind, name(t)})
		}
	}
	sort.Slice(out.Kinds, func(i, j int) bool {
		return strings.Join(out.Kinds[i][:], "/") < strings.Join(out.Kinds[j][:], "/")
	})
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}

func name(t reflect.Type) string {
	return t.PkgPath() + "." + t.Name()
}

func collect(t reflect.Type, found map[string]Fields) {
	if _, done := found[name(t)]; done {
		return
	}
	fields := Fields{}
	found[name(t)] = fields
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		if _, err := strconv.Atoi(tag[1]); err != nil {
			panic(name(t) + "." + f.Name + ": " + tag[1])
		}
		jsonName, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		omits := strings.Contains(options, "omitempty") && f.Type.Kind() != reflect.Pointer
		fields[tag[1]] = [3]any{jsonName, value(f.Type, tag[0], found), omits}
	}
}

func value(t reflect.Type, wire string, found map[string]Fields) string {
	if known := special[name(t)]; known != "" {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return value(t.Elem(), wire, found)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.Name() != "" {
			// A named list is a message whose field 1 are the items.
			return "items:" + value(t.Elem(), wire, found)
		}
		return "[]" + value(t.Elem(), wire, found)
	case reflect.Map:
		return "map:" + value(t.Elem(), wire, found)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "double"
	case reflect.Struct:
		collect(t, found)
		return name(t)
	}
	panic("what is " + t.String())
}
