package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// Widget is the stored version of what is admitted.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec `json:"spec,omitempty"`
}

// WidgetSpec has a size, a color, and as many texts as its 2 KB allow.
type WidgetSpec struct {
	Size  int64             `json:"size"`
	Color string            `json:"color,omitempty"`
	Texts map[string]string `json:"texts,omitempty"`
}

// Hub marks it as what the other version is converted to.
func (*Widget) Hub() {}

// DeepCopyObject copies everything, as the code does that controller-gen makes.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := &Widget{TypeMeta: w.TypeMeta, Spec: w.Spec}
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Texts = copied(w.Spec.Texts)
	return out
}

// OldWidget is its older version, whose size is called width.
type OldWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldWidgetSpec `json:"spec,omitempty"`
}

// OldWidgetSpec has the same fields by other names.
type OldWidgetSpec struct {
	Width int64             `json:"width"`
	Color string            `json:"color,omitempty"`
	Texts map[string]string `json:"texts,omitempty"`
}

// DeepCopyObject copies everything, as the code does that controller-gen makes.
func (w *OldWidget) DeepCopyObject() runtime.Object {
	out := &OldWidget{TypeMeta: w.TypeMeta, Spec: w.Spec}
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Texts = copied(w.Spec.Texts)
	return out
}

// ConvertTo makes the stored version of it.
func (w *OldWidget) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Widget)
	to.ObjectMeta = w.ObjectMeta
	to.Spec = WidgetSpec{Size: w.Spec.Width, Color: w.Spec.Color, Texts: w.Spec.Texts}
	return nil
}

// ConvertFrom makes it of the stored version.
func (w *OldWidget) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Widget)
	w.ObjectMeta = from.ObjectMeta
	w.Spec = OldWidgetSpec{Width: from.Spec.Size, Color: from.Spec.Color, Texts: from.Spec.Texts}
	return nil
}

func copied(texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for name, value := range texts {
		out[name] = value
	}
	return out
}

func addWidgets(scheme *runtime.Scheme) {
	for version, obj := range map[string]runtime.Object{"v1": &Widget{}, "v1beta1": &OldWidget{}} {
		group := schema.GroupVersion{Group: "example.com", Version: version}
		scheme.AddKnownTypeWithName(group.WithKind("Widget"), obj)
		metav1.AddToGroupVersion(scheme, group)
	}
}
