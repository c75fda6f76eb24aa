// An operator written with client-go alone: an informer, a work queue and leader election.
//
// For every Widget it keeps a ConfigMap that says how big the Widget is, and writes into the Widget's
// status what it has seen. What it does it prints, a JSON object per line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

type operator struct {
	namespace string
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	lister    cache.GenericLister
	queue     workqueue.TypedRateLimitingInterface[string]
	tries     sync.Map
}

func tell(what string, about any) {
	line, err := json.Marshal(map[string]any{what: about})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API server is")
	namespace := flag.String("namespace", "default", "where the Widgets are")
	identity := flag.String("identity", "", "the name of this replica")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	must(err)
	untyped, err := dynamic.NewForConfig(config)
	must(err)
	version, err := typed.Discovery().ServerVersion()
	must(err)
	tell("server", version.GitVersion)
	groups, err := typed.Discovery().ServerPreferredResources()
	must(err)
	tell("groups", len(groups))

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	each := &operator{namespace: *namespace, typed: typed, dynamic: untyped}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "widget-operator", Namespace: *namespace},
		Client:     typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		ReleaseOnCancel: true,
		LeaseDuration:   3 * time.Second,
		RenewDeadline:   2 * time.Second,
		RetryPeriod:     200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: each.run,
			OnStoppedLeading: func() { tell("stopped", *identity) },
			OnNewLeader:      func(leader string) { tell("leader", leader) },
		},
	})
}

func (o *operator) run(ctx context.Context) {
	o.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[string]())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(
		o.dynamic, 0, o.namespace, nil)
	informer := factory.ForResource(widgets)
	o.lister = informer.Lister()
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			o.queue.Add(key)
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, now any) { add(now) },
		DeleteFunc: add,
	})
	must(err)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return
	}
	tell("synced", len(informer.Informer().GetStore().List()))
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for o.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	o.queue.ShutDown()
	workers.Wait()
	factory.Shutdown()
}

func (o *operator) next(ctx context.Context) bool {
	key, isOver := o.queue.Get()
	if isOver {
		return false
	}
	defer o.queue.Done(key)
	if err := o.reconcile(ctx, key); err != nil {
		tell("failed", map[string]string{"key": key, "error": err.Error()})
		o.queue.AddRateLimited(key)
		return true
	}
	o.queue.Forget(key)
	return true
}

func (o *operator) reconcile(ctx context.Context, key string) error {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	found, err := o.lister.ByNamespace(o.namespace).Get(name)
	if apierrors.IsNotFound(err) {
		tell("gone", name)
		return nil
	}
	if err != nil {
		return err
	}
	if _, tried := o.tries.LoadOrStore(name, true); !tried && name == "flaky" {
		return errors.New("the first try fails")
	}
	widget := found.(*unstructured.Unstructured)
	size, _, err := unstructured.NestedInt64(widget.Object, "spec", "size")
	if err != nil {
		return err
	}
	if err := o.keepConfigMap(ctx, widget, size); err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := o.dynamic.Resource(widgets).Namespace(o.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		seen, _, _ := unstructured.NestedInt64(now.Object, "status", "seen")
		if seen == size {
			return nil
		}
		if err := unstructured.SetNestedField(now.Object, size, "status", "seen"); err != nil {
			return err
		}
		_, err = o.dynamic.Resource(widgets).Namespace(o.namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	tell("reconciled", map[string]any{"name": name, "size": size})
	return nil
}

func (o *operator) keepConfigMap(ctx context.Context, widget *unstructured.Unstructured, size int64) error {
	isController := true
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: widget.GetName(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: widget.GetAPIVersion(), Kind: widget.GetKind(),
				Name: widget.GetName(), UID: widget.GetUID(), Controller: &isController,
			}},
		},
		Data: map[string]string{"size": fmt.Sprint(size)},
	}
	maps := o.typed.CoreV1().ConfigMaps(o.namespace)
	_, err := maps.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = maps.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}
