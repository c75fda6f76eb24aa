// A contestant: a controller of controller-runtime, made by its builder.
//
// Events are counted by an event handler of the controller, reconciles by its reconciler. Variants:
// "typed" (the default, what its book shows: Go types for widgets and pods) and "unstructured". Of
// pods it asks for protobuf first, which a server of Kubernetes gives and the replay server does not:
// typed pods cost less on a cluster than here.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"appsdk-operator/benchmarks/peers/measure"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func main() {
	measure.Main(map[string]measure.Job{
		"watch":     watch,
		"list":      list,
		"latency":   latency,
		"reconcile": reconcileAll,
	})
}

// manage makes a manager. It serves no metrics, since two contestants would want one port. Its
// client reads unstructured objects from the cache too, as it does typed ones by default.
func manage(options measure.Options) ctrl.Manager {
	ctrl.SetLogger(klog.Background())
	scheme := runtime.NewScheme()
	measure.Must(clientgoscheme.AddToScheme(scheme))
	measure.Must(widgetScheme.AddToScheme(scheme))
	manager, err := ctrl.NewManager(options.Config(), ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	measure.Must(err)
	return manager
}

// object is an empty one of the kind, in the form of the variant.
func object(options measure.Options) client.Object {
	if options.Variant == "unstructured" {
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		if options.Kind == "pods" {
			kind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
		}
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(kind)
		return empty
	}
	if options.Kind == "pods" {
		return &corev1.Pod{}
	}
	return &Widget{}
}

// start runs the manager in the background. It ends with the process.
func start(manager ctrl.Manager) {
	go func() { measure.Must(manager.Start(context.Background())) }()
}

// handle gives the events of the kind to a handler, and nothing to the reconciler.
func handle(manager ctrl.Manager, options measure.Options, handler handler.Funcs) {
	nothing := func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	}
	measure.Must(ctrl.NewControllerManagedBy(manager).
		Named("contestant").
		Watches(object(options), handler).
		Complete(reconcile.Func(nothing)))
}

func watch(options measure.Options) map[string]float64 {
	manager := manage(options)
	counter := measure.NewCounter(options.Events)
	handle(manager, options, handler.Funcs{
		UpdateFunc: func(context.Context, event.UpdateEvent, queue) { counter.Add() },
	})
	start(manager)
	return counter.Result("events")
}

func list(options measure.Options) map[string]float64 {
	manager := manage(options)
	counter := measure.NewCounter(options.Objects)
	handle(manager, options, handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, queue) { counter.Add() },
	})
	return measure.List(counter, func() { start(manager) }, manager)
}

func latency(options measure.Options) map[string]float64 {
	manager := manage(options)
	lateness := measure.NewLateness(options.Events)
	handle(manager, options, handler.Funcs{
		UpdateFunc: func(_ context.Context, update event.UpdateEvent, _ queue) {
			lateness.Add(update.ObjectNew.GetResourceVersion())
		},
	})
	start(manager)
	return lateness.Result()
}

// reconcileAll reconciles the objects that appear after the first list: each is read from the cache,
// and from the server if that is asked for.
func reconcileAll(options measure.Options) map[string]float64 {
	manager := manage(options)
	counter := measure.NewCounter(options.Events)
	live := manager.GetAPIReader()
	one := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		found := object(options)
		err := manager.GetClient().Get(ctx, request.NamespacedName, found)
		if err == nil && options.CallMS > 0 {
			err = live.Get(ctx, request.NamespacedName, found)
		}
		counter.Add()
		return reconcile.Result{}, err
	}
	isNew := predicate.Funcs{
		CreateFunc: func(creation event.CreateEvent) bool { return !creation.IsInInitialList },
	}
	measure.Must(ctrl.NewControllerManagedBy(manager).
		For(object(options), builder.WithPredicates(isNew)).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Workers}).
		Complete(reconcile.Func(one)))
	start(manager)
	return counter.Result("reconciles")
}
