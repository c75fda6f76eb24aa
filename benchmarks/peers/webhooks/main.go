// A contestant: webhooks of controller-runtime, made by its builder; and what they are measured with.
//
//   - serve: a defaulter, a validator and a conversion of widgets with Go types, on its server.
//   - floor: a handler of Go's net/http that reads the review and answers with the same bytes.
//   - load: sends one review again and again over a number of connections, as fast as answers come.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"appsdk-operator/benchmarks/peers/measure"
)

// Options is what the benchmark asks for.
type Options struct {
	// Certificates is the folder with tls.crt and tls.key.
	Certificates string `json:"certificates"`
	// Answer is what the floor answers with.
	Answer string `json:"answer"`
	// Address is where the load goes, and Path which webhook of it.
	Address string `json:"address"`
	Path    string `json:"path"`
	// Body is the file with the review.
	Body string `json:"body"`
	// Wanted is what each answer has to contain.
	Wanted string `json:"wanted"`
	// Process is the one that answers, whose CPU time is measured.
	Process     int     `json:"process"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	WarmUp      float64 `json:"warm_up"`
}

func main() {
	if len(os.Args) != 3 {
		measure.Fail(fmt.Errorf("usage: %s serve|floor|load OPTIONS", os.Args[0]))
	}
	var options Options
	measure.Must(json.Unmarshal([]byte(os.Args[2]), &options))
	switch os.Args[1] {
	case "serve":
		serve(options)
	case "floor":
		floor(options)
	case "load":
		line, err := json.Marshal(load(options))
		measure.Must(err)
		fmt.Println(string(line))
	default:
		measure.Fail(fmt.Errorf("there is no %q", os.Args[1]))
	}
}

func serve(options Options) {
	klog.LogToStderr(true)
	ctrl.SetLogger(klog.Background())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	measure.Must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	measure.Must(listener.Close())
	scheme := runtime.NewScheme()
	addWidgets(scheme)
	// Nothing here asks an API server: there need not be one at this address.
	manager, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "127.0.0.1", Port: port, CertDir: options.Certificates,
		}),
	})
	measure.Must(err)
	measure.Must(builder.WebhookManagedBy(manager, &Widget{}).
		WithDefaulter(widgets{}).
		WithValidator(widgets{}).
		Complete())
	ctx, stop := context.WithCancel(context.Background())
	go untilInputEnds(stop)
	go func() {
		<-manager.Elected()
		fmt.Println(port)
	}()
	measure.Must(manager.Start(ctx))
}

type widgets struct{}

func (widgets) Default(_ context.Context, obj *Widget) error {
	if obj.Spec.Color == "" {
		obj.Spec.Color = "red"
	}
	return nil
}

func (widgets) ValidateCreate(_ context.Context, obj *Widget) (admission.Warnings, error) {
	if obj.Spec.Size < 0 {
		return nil, errors.New("spec.size is negative")
	}
	return nil, nil
}

func (widgets) ValidateUpdate(context.Context, *Widget, *Widget) (admission.Warnings, error) {
	return nil, nil
}

func (widgets) ValidateDelete(context.Context, *Widget) (admission.Warnings, error) {
	return nil, nil
}

func floor(options Options) {
	answer := []byte(options.Answer)
	handler := func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	measure.Must(err)
	go untilInputEnds(func() { os.Exit(0) })
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	folder := options.Certificates
	measure.Must(http.ServeTLS(
		listener, http.HandlerFunc(handler), folder+"/tls.crt", folder+"/tls.key",
	))
}

func untilInputEnds(then func()) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	then()
}
