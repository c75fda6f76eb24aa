// Prints how Go reads and writes the fields of Kubernetes' built-in kinds: the facts of its types
// that their OpenAPI documents do not tell. Run by ../builtin_schemas.py.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Field is one field of a struct, with those of embedded structs in their places.
type Field struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Class string `json:"class"`
}

func main() {
	known := scheme.Scheme
	if err := apiextensions.AddToScheme(known); err != nil {
		panic(err)
	}
	if err := apiregistration.AddToScheme(known); err != nil {
		panic(err)
	}
	found := map[string][]Field{}
	for _, kind := range known.AllKnownTypes() {
		collect(kind, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func collect(t reflect.Type, found map[string][]Field) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	name := t.PkgPath() + "." + t.Name()
	if _, done := found[name]; done || t.Kind() != reflect.Struct {
		return
	}
	found[name] = nil
	found[name] = fields(t, found)
}

func fields(t reflect.Type, found map[string][]Field) []Field {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-" || f.Type.Kind() == reflect.Func:
		case f.Anonymous && name == "":
			all = append(all, fields(f.Type, found)...)
		default:
			collect(f.Type, found)
			if name == "" {
				name = f.Name
			}
			all = append(all, Field{name, f.Type.String(), class(f.Type, options)})
		}
	}
	return all
}

// How a field is written: "o" left out when it is empty, "p" left out when it is nil,
// "n" as null when it is nil, "a" always.
func class(t reflect.Type, options string) string {
	omits := strings.Contains(options, "omitempty")
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		if omits {
			return "p"
		}
		return "n"
	case reflect.Struct:
		if strings.Contains(options, "omitzero") {
			return "o"
		}
		return "a"
	default:
		if omits {
			return "o"
		}
		if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			return "n"
		}
		return "a"
	}
}
