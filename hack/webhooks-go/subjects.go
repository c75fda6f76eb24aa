package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// Group is that of all kinds here.
const Group = "webhooks.example.com"

// Subject is the kind that most webhooks are asked about, in the version that is stored. The schema
// has two fields that it does not know: spec.newer and spec.extra.
type Subject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SubjectSpec   `json:"spec,omitzero"`
	Status            SubjectStatus `json:"status,omitzero"`
}

// SubjectSpec has a field of each form.
type SubjectSpec struct {
	Text     string            `json:"text,omitempty"`
	Count    *int64            `json:"count,omitempty"`
	Replicas *int32            `json:"replicas,omitempty"`
	List     []string          `json:"list,omitempty"`
	Jobs     []Job             `json:"jobs,omitempty"`
	Nested   *Nested           `json:"nested,omitempty"`
	Words    map[string]string `json:"words,omitempty"`
	// Convert is what befalls a conversion of this object: fail, panic, rename, identity, relabel.
	Convert string `json:"convert,omitempty"`
}

// Job is an item of a list.
type Job struct {
	Name  string  `json:"name"`
	Ports []int32 `json:"ports,omitempty"`
}

// Nested is an object in an object.
type Nested struct {
	Flag *bool   `json:"flag,omitempty"`
	Deep *Nested `json:"deep,omitempty"`
	Text string  `json:"text,omitempty"`
}

// SubjectStatus is written by the subresource.
type SubjectStatus struct {
	Phase    string `json:"phase,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

// Hub marks it as what the others are converted to and from.
func (*Subject) Hub() {}

// DeepCopyObject is what a kind has to have.
func (s *Subject) DeepCopyObject() runtime.Object { return copied(s, &Subject{}) }

// OldSubject is version v1beta1: text is called title, and the count is part of a size.
type OldSubject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldSubjectSpec `json:"spec,omitzero"`
	Status            SubjectStatus  `json:"status,omitzero"`
}

// OldSubjectSpec has the same in another form.
type OldSubjectSpec struct {
	Title    string            `json:"title,omitempty"`
	Size     *Size             `json:"size,omitempty"`
	Replicas *int32            `json:"replicas,omitempty"`
	List     []string          `json:"list,omitempty"`
	Words    map[string]string `json:"words,omitempty"`
	Convert  string            `json:"convert,omitempty"`
}

// Size is a count with a unit, which the other versions do not have.
type Size struct {
	Count int64 `json:"count"`
}

// DeepCopyObject is what a kind has to have.
func (s *OldSubject) DeepCopyObject() runtime.Object { return copied(s, &OldSubject{}) }

// ConvertTo makes the stored version of it.
func (s *OldSubject) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Subject)
	to.ObjectMeta = s.ObjectMeta
	to.Spec = SubjectSpec{
		Text: s.Spec.Title, Replicas: s.Spec.Replicas, List: s.Spec.List, Words: s.Spec.Words,
		Convert: s.Spec.Convert,
	}
	if s.Spec.Size != nil {
		to.Spec.Count = &s.Spec.Size.Count
	}
	to.Status = s.Status
	return befall(s.Spec.Convert, &to.ObjectMeta)
}

// ConvertFrom makes it of the stored version.
func (s *OldSubject) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Subject)
	s.ObjectMeta = from.ObjectMeta
	s.Spec = OldSubjectSpec{
		Title: from.Spec.Text, Replicas: from.Spec.Replicas, List: from.Spec.List,
		Words: from.Spec.Words, Convert: from.Spec.Convert,
	}
	if from.Spec.Count != nil {
		s.Spec.Size = &Size{Count: *from.Spec.Count}
	}
	s.Status = from.Status
	return befall(from.Spec.Convert, &s.ObjectMeta)
}

// OldestSubject is version v1alpha1, which has a text alone.
type OldestSubject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldestSubjectSpec `json:"spec,omitzero"`
}

// OldestSubjectSpec has little.
type OldestSubjectSpec struct {
	Name string `json:"name,omitempty"`
}

// DeepCopyObject is what a kind has to have.
func (s *OldestSubject) DeepCopyObject() runtime.Object { return copied(s, &OldestSubject{}) }

// ConvertTo makes the stored version of it.
func (s *OldestSubject) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Subject)
	to.ObjectMeta = s.ObjectMeta
	to.Spec.Text = s.Spec.Name
	return nil
}

// ConvertFrom makes it of the stored version.
func (s *OldestSubject) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Subject)
	s.ObjectMeta = from.ObjectMeta
	s.Spec.Name = from.Spec.Text
	return nil
}

// befall does to a conversion what its object says.
func befall(what string, meta *metav1.ObjectMeta) error {
	switch what {
	case "fail":
		return fmt.Errorf("%s cannot be converted", meta.Name)
	case "panic":
		panic("the converter is broken")
	case "rename":
		meta.Name += "-renamed"
	case "identity":
		meta.UID = "00000000-0000-0000-0000-000000000000"
	case "finalize":
		meta.Finalizers = append(meta.Finalizers, "webhooks.example.com/converted")
	case "relabel":
		if meta.Labels == nil {
			meta.Labels = map[string]string{}
		}
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Labels["converted"] = "yes"
		meta.Annotations["webhooks.example.com/converted"] = "yes"
	}
	return nil
}

func copied[T runtime.Object](from, to T) T {
	content, err := json.Marshal(from)
	must(err)
	must(json.Unmarshal(content, to))
	return to
}

func addSubjects(scheme *runtime.Scheme) {
	version := func(name string) schema.GroupVersion {
		return schema.GroupVersion{Group: Group, Version: name}
	}
	scheme.AddKnownTypeWithName(version("v1").WithKind("Subject"), &Subject{})
	scheme.AddKnownTypeWithName(version("v1beta1").WithKind("Subject"), &OldSubject{})
	scheme.AddKnownTypeWithName(version("v1alpha1").WithKind("Subject"), &OldestSubject{})
	for _, name := range []string{"v1", "v1beta1", "v1alpha1"} {
		metav1.AddToGroupVersion(scheme, version(name))
	}
}
