// A contestant: the dynamic shared informer of client-go, with a work queue where reconciles are
// counted, as its own examples and sample-controller build one. Its informer streams the first list
// where the server can do that, which is client-go's default.
package main

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"appsdk-operator/benchmarks/peers/measure"
)

var resources = map[string]schema.GroupVersionResource{
	"widgets": {Group: "example.com", Version: "v1", Resource: "widgets"},
	"pods":    {Version: "v1", Resource: "pods"},
}

func main() {
	measure.Main(map[string]measure.Job{
		"watch":     watch,
		"list":      list,
		"latency":   latency,
		"reconcile": reconcile,
	})
}

// contestant is an informer that has not been started.
type contestant struct {
	client   dynamic.Interface
	factory  dynamicinformer.DynamicSharedInformerFactory
	informer informers.GenericInformer
	resource schema.GroupVersionResource
}

func build(options measure.Options) contestant {
	client, err := dynamic.NewForConfig(options.Config())
	measure.Must(err)
	resource := resources[options.Kind]
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	return contestant{client, factory, factory.ForResource(resource), resource}
}

func (c contestant) handle(handler cache.ResourceEventHandler) {
	_, err := c.informer.Informer().AddEventHandler(handler)
	measure.Must(err)
}

func (c contestant) start() {
	c.factory.Start(context.Background().Done())
}

func watch(options measure.Options) map[string]float64 {
	contestant := build(options)
	counter := measure.NewCounter(options.Events)
	contestant.handle(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, _ any) { counter.Add() },
	})
	contestant.start()
	return counter.Result("events")
}

func list(options measure.Options) map[string]float64 {
	contestant := build(options)
	counter := measure.NewCounter(options.Objects)
	contestant.handle(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { counter.Add() }})
	return measure.List(counter, contestant.start, contestant.factory)
}

func latency(options measure.Options) map[string]float64 {
	contestant := build(options)
	lateness := measure.NewLateness(options.Events)
	contestant.handle(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) {
			object, err := meta.Accessor(now)
			measure.Must(err)
			lateness.Add(object.GetResourceVersion())
		},
	})
	contestant.start()
	return lateness.Result()
}

func reconcile(options measure.Options) map[string]float64 {
	contestant := build(options)
	counter := measure.NewCounter(options.Events)
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[string]())
	contestant.handle(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if key, err := cache.MetaNamespaceKeyFunc(object); err == nil && !isInInitialList {
				queue.Add(key)
			}
		},
	})
	contestant.start()
	var workers sync.WaitGroup
	for range options.Workers {
		workers.Go(func() {
			for contestant.next(queue, options) {
				counter.Add()
			}
		})
	}
	result := counter.Result("reconciles")
	queue.ShutDown()
	workers.Wait()
	return result
}

// next reconciles one object: it is read from the cache, and from the server if that is asked for.
func (c contestant) next(
	queue workqueue.TypedRateLimitingInterface[string], options measure.Options,
) bool {
	key, isOver := queue.Get()
	if isOver {
		return false
	}
	defer queue.Done(key)
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	measure.Must(err)
	_, err = c.informer.Lister().ByNamespace(namespace).Get(name)
	measure.Must(err)
	if options.CallMS > 0 {
		_, err = c.client.Resource(c.resource).Namespace(namespace).Get(
			context.Background(), name, metav1.GetOptions{})
		measure.Must(err)
	}
	queue.Forget(key)
	return true
}
