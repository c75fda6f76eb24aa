// Package measure reads what a contestant is asked to do, counts what reaches its callbacks, and
// prints what it measured: one JSON object of numbers, on the last line.
package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// settle is how long a process is left alone before its memory is read, so that what a list left
// behind is gone as far as the runtime wants it to be.
const settle = time.Second

// Options is what the benchmark asks for.
type Options struct {
	// Server is the address of the replay server.
	Server string `json:"server"`
	// CA is the file of its authority's certificate, none without TLS.
	CA *string `json:"ca"`
	// Kind is "widgets" (example.com/v1) or "pods" (v1).
	Kind string `json:"kind"`
	// Objects is how many of them the list holds.
	Objects int `json:"objects"`
	// Events is how many events follow it.
	Events int `json:"events"`
	// Workers is how many reconciles may run at a time.
	Workers int `json:"workers"`
	// CallMS is how long the server takes for the request that each reconcile makes, none if 0.
	CallMS float64 `json:"call_ms"`
	// Variant is the form of the contestant.
	Variant string `json:"variant"`
}

// Job measures one thing.
type Job func(Options) map[string]float64

// Main runs the job that the command line names, and prints what it measured.
func Main(jobs map[string]Job) {
	if len(os.Args) != 3 {
		Fail(fmt.Errorf("usage: %s JOB OPTIONS", os.Args[0]))
	}
	job, known := jobs[os.Args[1]]
	if !known {
		Fail(fmt.Errorf("this contestant has no job %q", os.Args[1]))
	}
	options := Options{Workers: 1}
	Must(json.Unmarshal([]byte(os.Args[2]), &options))
	line, err := json.Marshal(job(options))
	Must(err)
	fmt.Println(string(line))
}

// Config is how the server is reached. Requests are not slowed down by the client: what is measured
// is not its rate limiter, which controller-runtime turns off and client-go sets to 5 requests a
// second.
func (o Options) Config() *rest.Config {
	config := &rest.Config{Host: o.Server, QPS: -1}
	if o.CA != nil {
		config.CAFile = *o.CA
	}
	return config
}

// Must ends the process with an error, if there is one.
func Must(err error) {
	if err != nil {
		Fail(err)
	}
}

// Fail ends the process with an error.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// moment is a time, and how much CPU time the process had used until then.
type moment struct {
	time time.Time
	cpu  time.Duration
}

func now() moment {
	var usage unix.Rusage
	Must(unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return moment{time.Now(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
}

// Counter notes when the first and the last of a number of callbacks came.
type Counter struct {
	// Done is closed by the last one.
	Done chan struct{}

	lock        sync.Mutex
	want, seen  int
	first, last moment
}

// NewCounter waits for so many callbacks.
func NewCounter(want int) *Counter {
	return &Counter{Done: make(chan struct{}), want: want}
}

// Add notes a callback.
func (c *Counter) Add() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.seen++
	if c.seen == 1 {
		c.first = now()
	}
	if c.seen == c.want {
		c.last = now()
		close(c.Done)
	}
}

// Result waits for the last callback, and tells the time since the first one.
func (c *Counter) Result(what string) map[string]float64 {
	<-c.Done
	return c.since(c.first, what)
}

func (c *Counter) since(began moment, what string) map[string]float64 {
	return map[string]float64{
		"seconds": c.last.time.Sub(began.time).Seconds(),
		"cpu":     (c.last.cpu - began.cpu).Seconds(),
		what:      float64(c.want),
	}
}

// Lateness collects how old events are when their callback is made: their resource version is the
// time at which they were sent.
type Lateness struct {
	counter *Counter
	lock    sync.Mutex
	seconds []float64
}

// NewLateness waits for so many events.
func NewLateness(want int) *Lateness {
	return &Lateness{counter: NewCounter(want), seconds: make([]float64, 0, want)}
}

// Add notes an event.
func (l *Lateness) Add(version string) {
	var now unix.Timespec
	Must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	sent, err := strconv.ParseInt(version, 10, 64)
	Must(err)
	l.lock.Lock()
	l.seconds = append(l.seconds, float64(now.Nano()-sent)/1e9)
	l.lock.Unlock()
	l.counter.Add()
}

// Result waits for the last event, and tells the percentiles. The first tenth, in which all get
// warm, is left out.
func (l *Lateness) Result() map[string]float64 {
	<-l.counter.Done
	l.lock.Lock()
	defer l.lock.Unlock()
	seconds := l.seconds[len(l.seconds)/10:]
	slices.Sort(seconds)
	at := func(share float64) float64 {
		return seconds[min(int(share*float64(len(seconds))), len(seconds)-1)]
	}
	return map[string]float64{"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}
}

// List measures a list: begin starts it, and the counter tells when the last object's callback was
// made. What is given to keep stays in memory until the memory was read.
func List(counter *Counter, begin func(), keep any) map[string]float64 {
	before := status("VmRSS")
	began := now()
	begin()
	<-counter.Done
	result := counter.since(began, "objects")
	time.Sleep(settle)
	result["rss_before"] = before
	result["rss_after"] = status("VmRSS")
	result["peak"] = status("VmHWM")
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	runtime.KeepAlive(keep)
	result["heap"] = float64(memory.HeapAlloc)
	return result
}

// status reads a line of /proc/self/status, in bytes.
func status(name string) float64 {
	file, err := os.Open("/proc/self/status")
	Must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), name+":"); found {
			kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			Must(err)
			return kilobytes * 1024
		}
	}
	return 0
}
