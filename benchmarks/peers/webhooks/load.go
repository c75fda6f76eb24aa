package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"appsdk-operator/benchmarks/peers/measure"
)

// load sends the review over each connection, the next one when the answer has come, and tells how
// many answers a second there were, how long they took, and what CPU time both sides used.
func load(options Options) map[string]float64 {
	body, err := os.ReadFile(options.Body)
	measure.Must(err)
	request := fmt.Appendf(nil, "POST %s?timeout=10s HTTP/1.1\r\nHost: webhooks.example.com\r\n"+
		"User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		options.Path, len(body), body)

	var begin, end time.Time
	var usedBefore, usedAfter, ownBefore, ownAfter time.Duration
	start := time.Now().Add(time.Duration(options.WarmUp * float64(time.Second)))
	stop := start.Add(time.Duration(options.Seconds * float64(time.Second)))
	taken := make([][]time.Duration, options.Connections)
	var lines sync.WaitGroup
	for number := range options.Connections {
		lines.Add(1)
		go func() {
			defer lines.Done()
			taken[number] = exchange(options, request, start, stop)
		}()
	}
	time.Sleep(time.Until(start))
	begin, usedBefore, ownBefore = time.Now(), used(options.Process), own()
	time.Sleep(time.Until(stop))
	end, usedAfter, ownAfter = time.Now(), used(options.Process), own()
	lines.Wait()

	all := slices.Concat(taken...)
	slices.Sort(all)
	at := func(share float64) float64 {
		return all[min(int(share*float64(len(all))), len(all)-1)].Seconds()
	}
	count, seconds := float64(len(all)), end.Sub(begin).Seconds()
	cpu := (usedAfter - usedBefore).Seconds()
	return map[string]float64{
		"reviews": count, "seconds": seconds, "cpu": cpu,
		"cores": cpu / seconds, "load_cores": (ownAfter - ownBefore).Seconds() / seconds,
		"p50": at(0.5), "p99": at(0.99), "p999": at(0.999),
	}
}

// exchange is one connection. What counts are the answers that come between start and stop.
func exchange(options Options, request []byte, start, stop time.Time) []time.Duration {
	plain, err := net.Dial("tcp", options.Address)
	measure.Must(err)
	// Whose certificate it is, is not what is measured.
	line := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	defer line.Close()
	reader := bufio.NewReaderSize(line, 16<<10)
	wanted, content := []byte(options.Wanted), new(bytes.Buffer)
	var taken []time.Duration
	for {
		before := time.Now()
		if before.After(stop) {
			return taken
		}
		_, err := line.Write(request)
		measure.Must(err)
		response, err := http.ReadResponse(reader, nil)
		measure.Must(err)
		content.Reset()
		_, err = io.Copy(content, response.Body)
		measure.Must(err)
		if response.StatusCode != 200 || !bytes.Contains(content.Bytes(), wanted) {
			measure.Fail(fmt.Errorf("%s: %s", response.Status, content))
		}
		if after := time.Now(); before.After(start) && after.Before(stop) {
			taken = append(taken, after.Sub(before))
		}
	}
}

// used is the CPU time of another process so far, in steps of 10 ms.
func used(process int) time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	measure.Must(err)
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	measure.Must(err)
	system, err := strconv.Atoi(fields[12])
	measure.Must(err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

func own() time.Duration {
	var usage unix.Rusage
	measure.Must(unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
