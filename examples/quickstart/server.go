package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The demo's server.
const (
	serverLimit  = 50                    // requests that it allows
	serverWindow = time.Second           // in any stretch of this length
	serverFaults = 0.02                  // the share of requests that it answers with 500
	serverDelay  = 20 * time.Millisecond // the least it takes to answer; the most is four times as long
)

// A server is the metered service: it refuses what exceeds its limit, is a little slow, and fails now and then.
type server struct {
	window   window
	fails    func() bool
	answered struct{ ok, throttled, failed atomic.Int64 }
}

func newServer() *server {
	return &server{
		window: window{recent: make([]time.Time, serverLimit)},
		fails:  func() bool { return rand.Float64() < serverFaults },
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.window.admit(time.Now()) {
		s.answered.throttled.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	select {
	case <-time.After(serverDelay + rand.N(3*serverDelay)):
	case <-r.Context().Done(): // the client has hung up
		return
	}
	if s.fails() {
		s.answered.failed.Add(1)
		http.Error(w, "something broke", http.StatusInternalServerError)
		return
	}
	s.answered.ok.Add(1)
	fmt.Fprintln(w, "ok")
}

// A window is a sliding one: a request is admitted unless len(recent) others were in the serverWindow before it.
type window struct {
	mu     sync.Mutex
	recent []time.Time // a ring of the last admitted requests
	next   int         // the oldest of them
}

func (w *window) admit(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if oldest := w.recent[w.next]; !oldest.IsZero() && now.Sub(oldest) < serverWindow {
		return false
	}
	w.recent[w.next] = now
	w.next = (w.next + 1) % len(w.recent)
	return true
}

// listen serves handler on a free port of loopback until stop is called, which waits for the server to end.
func listen(handler http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("the demo's server cannot listen on loopback: %w", err)
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			srv.Close()
		}
		<-ended
	}
	return "http://" + l.Addr().String(), stop, nil
}
