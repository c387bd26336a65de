package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

//go:embed page
var page embed.FS

// serve shows the page until ctx ends.
func serve(ctx context.Context, cfg config, stdout io.Writer) error {
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return fmt.Errorf("cannot listen on -addr %s: %w", cfg.addr, err)
	}
	fmt.Fprintf(stdout, "http://%s/\nCtrl-C ends it\n", l.Addr())
	srv := &http.Server{
		Handler:           newServer(standard, cfg.settings),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // floods end with the program
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		srv.Close()
	}
	<-ended
	return nil
}

// mostFloods is how many floods may run at a time: each is some 300 requests.
const mostFloods = 16

// newServer returns the page, its files, and the floods it asks for.
func newServer(p plan, start settings) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // it is compiled in
	}
	index := template.Must(template.ParseFS(files, "index.html"))
	floods := make(chan struct{}, mostFloods)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = index.Execute(w, map[string]any{"Controls": controls, "Settings": start}) // it fails only if the reader is gone
	})
	mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
	mux.HandleFunc("GET /flood", func(w http.ResponseWriter, r *http.Request) {
		s, err := parseSettings(start, r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case floods <- struct{}{}:
			defer func() { <-floods }()
		default:
			http.Error(w, "too many floods at a time", http.StatusServiceUnavailable)
			return
		}
		if err := stream(w, r, p, s); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store") // a newer build may show something else at the same address
		mux.ServeHTTP(w, r)
	})
}

// parseSettings reads the settings from a query; what it does not have stays as it is in s.
func parseSettings(s settings, query url.Values) (settings, error) {
	var errs []error
	for _, c := range controls {
		text := query.Get(c.Name)
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= c.Min && v <= c.Max) { // also when it is not a number
			errs = append(errs, fmt.Errorf("%s is %q: it must be a number from %v to %v", c.Name, text, c.Min, c.Max))
			continue
		}
		c.set(&s, v)
	}
	if err := errors.Join(errs...); err != nil {
		return settings{}, err
	}
	return s, s.check("")
}

// What the page is told, as server-sent events. Times are milliseconds from the start of the flood.
type (
	startMessage struct {
		Horizon float64       `json:"horizon"`
		Waves   []waveMessage `json:"waves"`
		Lanes   []laneMessage `json:"lanes"`
	}
	waveMessage struct {
		At float64 `json:"at"`
		N  int     `json:"n"`
	}
	laneMessage struct {
		ID     string   `json:"id"`
		Name   string   `json:"name"`
		About  string   `json:"about"`
		Groups []string `json:"groups"`
	}
	eventMessage struct {
		Lane      int     `json:"lane"`
		At        float64 `json:"at"`
		Group     int     `json:"group"`
		Until     float64 `json:"until,omitempty"`
		Throttled bool    `json:"throttled,omitempty"`
		Error     string  `json:"error,omitempty"`
	}
)

var eventNames = map[kind]string{granted: "grant", refused: "refusal", paused: "pause"}

// stream floods the limiters and tells the page what happens, as it happens. It ends with the flood, or when the page
// goes away.
func stream(w http.ResponseWriter, r *http.Request, p plan, s settings) error {
	lanes, err := newLanes(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	say := func(name string, data any) error {
		text, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, text)
		}
		return err
	}
	start := startMessage{Horizon: ms(p.horizon)}
	for _, v := range p.waves {
		start.Waves = append(start.Waves, waveMessage{ms(v.at), v.n})
	}
	for _, l := range lanes {
		start.Lanes = append(start.Lanes, laneMessage{l.id, l.name, l.about, l.groups})
	}
	// From here on an error means that the page is gone, and there is nobody to tell.
	gone := errors.Join(say("start", start), out.Flush())
	events := flood(ctx, p, s, lanes)
	for e := range events {
		if gone != nil {
			cancel() // and go on until the flood has ended
			continue
		}
		message := eventMessage{Lane: e.lane, At: ms(e.at), Group: e.group, Until: ms(e.until)}
		switch {
		case e.kind == granted:
			message.Throttled = e.err != nil
		case e.err != nil:
			message.Error = e.err.Error()
		}
		gone = say(eventNames[e.kind], message)
		if gone == nil && len(events) == 0 { // what happens at one instant goes out together
			gone = out.Flush()
		}
	}
	cancel()
	if gone == nil && r.Context().Err() == nil {
		_ = say("end", struct{}{})
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
