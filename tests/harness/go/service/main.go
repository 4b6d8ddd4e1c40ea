// A small service that works for its answers, and a generator of load for it: what an Intent is shown on.
//
//	service serve :8080 8ms       every request costs so much CPU, one at a time; /metrics has a histogram
//	service load targets 20       so many requests a second, spread over the addresses in the file `targets`
//
// The file of the generator is read again every half second: its first line may be `rate N`.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var bounds = []float64{0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5}

type histogram struct {
	sync.Mutex
	counts []uint64
	sum    float64
	total  uint64
}

func (h *histogram) observe(seconds float64) {
	h.Lock()
	defer h.Unlock()
	for at, bound := range bounds {
		if seconds <= bound {
			h.counts[at]++
		}
	}
	h.sum += seconds
	h.total++
}

func (h *histogram) write(out io.Writer) {
	h.Lock()
	defer h.Unlock()
	fmt.Fprintln(out, "# TYPE request_seconds histogram")
	for at, bound := range bounds {
		fmt.Fprintf(out, "request_seconds_bucket{le=\"%g\"} %d\n", bound, h.counts[at])
	}
	fmt.Fprintf(out, "request_seconds_bucket{le=\"+Inf\"} %d\n", h.total)
	fmt.Fprintf(out, "request_seconds_sum %g\nrequest_seconds_count %d\n", h.sum, h.total)
}

// used is the CPU time of this thread: what a request costs must not depend on how busy the machine is.
func used() time.Duration {
	var usage syscall.Rusage
	const thread = 1
	_ = syscall.Getrusage(thread, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func work(cost time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for started := used(); used()-started < cost; {
		for i := 0; i < 20000; i++ {
			_ = i * i
		}
	}
}

func serve(address string, cost time.Duration) error {
	seen := &histogram{counts: make([]uint64, len(bounds))}
	turn := make(chan struct{}, 1)
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		arrived := time.Now()
		select {
		case turn <- struct{}{}:
			work(cost)
			<-turn
		case <-request.Context().Done(): // whoever asked has gone
		}
		seen.observe(time.Since(arrived).Seconds())
	})
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/metrics", func(response http.ResponseWriter, _ *http.Request) { seen.write(response) })
	return http.ListenAndServe(address, nil)
}

type plan struct {
	rate    float64
	targets []string
}

func read(file string, rate float64) plan {
	found := plan{rate: rate}
	opened, err := os.Open(file)
	if err != nil {
		return found
	}
	defer opened.Close()
	for lines := bufio.NewScanner(opened); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if said, is := strings.CutPrefix(line, "rate "); is {
			if number, err := strconv.ParseFloat(said, 64); err == nil {
				found.rate = number
			}
		} else if line != "" {
			found.targets = append(found.targets, line)
		}
	}
	return found
}

func load(file string, rate float64) {
	const most = 8 // connections, as a client's pool has them: a service that is behind slows its clients down
	client := &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: most}}
	var under, next atomic.Int64
	current := read(file, rate)
	readAt, due := time.Now(), time.Now()
	for {
		if time.Since(readAt) > 500*time.Millisecond {
			current, readAt = read(file, rate), time.Now()
		}
		if current.rate <= 0 || len(current.targets) == 0 {
			time.Sleep(50 * time.Millisecond)
			due = time.Now()
			continue
		}
		due = due.Add(time.Duration(float64(time.Second) / current.rate))
		time.Sleep(time.Until(due))
		if under.Load() >= most {
			continue
		}
		target := current.targets[next.Add(1)%int64(len(current.targets))]
		under.Add(1)
		go func() {
			defer under.Add(-1)
			if response, err := client.Get("http://" + target + "/"); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}()
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: service serve ADDRESS COST | service load FILE RATE")
		os.Exit(2)
	}
	if os.Args[1] == "load" {
		rate, _ := strconv.ParseFloat(os.Args[3], 64)
		load(os.Args[2], rate)
	}
	cost, err := time.ParseDuration(os.Args[3])
	if err == nil {
		err = serve(os.Args[2], cost)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
