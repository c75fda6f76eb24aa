// Webhooks written with controller-runtime that do what a table says.
//
// The table is JSON, a list of entries: where each is served, what it is (a defaulter, a validator,
// a handler, several of them, or a plain HTTP answer), and what it does. The tests have the same table
// carried out by webhooks written with the kit, and compare what an API server makes of both. Beside
// them /convert converts Subjects. The port is printed as a JSON line; the end of standard input is
// the end of the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Entry is one webhook.
type Entry struct {
	Path string `json:"path"`
	// Kind is whose objects a defaulter or a validator gets: Subject (the default), ConfigMap, Pod.
	Kind     string      `json:"kind"`
	Default  *Act        `json:"default"`
	Validate *Validation `json:"validate"`
	Mutate   []Handling  `json:"mutate"`
	Review   []Handling  `json:"review"`
	Raw      *Raw        `json:"raw"`
}

// Validation is what a validator does.
type Validation struct {
	Create *Act `json:"create"`
	Update *Act `json:"update"`
	Delete *Act `json:"delete"`
}

// Raw is an answer that no kit makes.
type Raw struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	// Body may say $uid for the uid of the review.
	Body string `json:"body"`
}

func main() {
	table := flag.String("table", "", "the file with the table")
	certificates := flag.String("certificates", "", "the folder with tls.crt and tls.key")
	flag.Parse()
	klog.LogToStderr(true)
	ctrl.SetLogger(klog.Background())

	var entries []Entry
	content, err := os.ReadFile(*table)
	must(err)
	must(json.Unmarshal(content, &entries))

	listener, err := net.Listen("tcp", ":0")
	must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	must(listener.Close())

	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	addSubjects(scheme)
	// Nothing here asks an API server: there need not be one at this address.
	manager, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Port: port, CertDir: *certificates,
		}),
	})
	must(err)
	must(builder.WebhookManagedBy(manager, &Subject{}).Complete())
	for _, entry := range entries {
		must(register(manager, entry))
	}

	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go func() {
		<-manager.Elected()
		fmt.Printf("{\"port\": %d}\n", port)
	}()
	must(manager.Start(ctx))
}

func register(manager ctrl.Manager, entry Entry) error {
	switch entry.Kind {
	case "ConfigMap":
		return registerFor(manager, entry, &corev1.ConfigMap{})
	case "Pod":
		return registerFor(manager, entry, &corev1.Pod{})
	default:
		return registerFor(manager, entry, &Subject{})
	}
}

func registerFor[T runtime.Object](manager ctrl.Manager, entry Entry, empty T) error {
	server := manager.GetWebhookServer()
	switch {
	case entry.Default != nil:
		return builder.WebhookManagedBy(manager, empty).
			WithDefaulter(defaulter[T]{entry.Default}).
			WithDefaulterCustomPath(entry.Path).
			Complete()
	case entry.Validate != nil:
		return builder.WebhookManagedBy(manager, empty).
			WithValidator(validator[T]{entry.Validate}).
			WithValidatorCustomPath(entry.Path).
			Complete()
	case entry.Mutate != nil:
		server.Register(entry.Path, handlers(entry.Mutate, admission.MultiMutatingHandler))
	case entry.Review != nil:
		server.Register(entry.Path, handlers(entry.Review, admission.MultiValidatingHandler))
	case entry.Raw != nil:
		server.Register(entry.Path, entry.Raw)
	default:
		return fmt.Errorf("%s does nothing", entry.Path)
	}
	return nil
}

func handlers(all []Handling, several func(...admission.Handler) admission.Handler) *admission.Webhook {
	if len(all) == 1 {
		return &admission.Webhook{Handler: &all[0]}
	}
	var found []admission.Handler
	for at := range all {
		found = append(found, &all[at])
	}
	return &admission.Webhook{Handler: several(found...)}
}

func (r *Raw) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	content, err := io.ReadAll(request.Body)
	must(err)
	_ = json.Unmarshal(content, &review)
	if r.Type != "" {
		w.Header().Set("Content-Type", r.Type)
	}
	w.WriteHeader(r.Status)
	_, _ = io.WriteString(w, strings.ReplaceAll(r.Body, "$uid", review.Request.UID))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
