package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var widgetScheme = &scheme.Builder{
	GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"},
}

func init() {
	widgetScheme.Register(&Widget{}, &WidgetList{})
}

// Widget is the custom resource of the benchmarks.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has as many text fields as the size that is asked for allows.
	Spec map[string]string `json:"spec,omitempty"`
}

// WidgetList is what a list of them is answered with.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Widget `json:"items"`
}

// DeepCopyInto copies everything, as the code does that controller-gen makes.
func (w *Widget) DeepCopyInto(out *Widget) {
	out.TypeMeta = w.TypeMeta
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if w.Spec != nil {
		out.Spec = make(map[string]string, len(w.Spec))
		for name, value := range w.Spec {
			out.Spec[name] = value
		}
	}
}

// DeepCopyObject makes it an object of the client.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := &Widget{}
	w.DeepCopyInto(out)
	return out
}

// DeepCopyObject makes it a list of the client.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := &WidgetList{TypeMeta: l.TypeMeta, Items: make([]Widget, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for index := range l.Items {
		l.Items[index].DeepCopyInto(&out.Items[index])
	}
	return out
}
