// Package k8s finds the endpoints of a Kubernetes service by listing and watching its EndpointSlices, with nothing but
// net/http: the addresses of pods that are ready, as soon as the API server tells of them. While it cannot be asked,
// the addresses known last stay in use; so they do when a service has no ready endpoint at all, since the health of
// endpoints is looked at elsewhere. Sizes, times and numbers are bounded, whatever the API server sends.
package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Service is what to find the endpoints of.
type Service struct {
	Namespace string // "" is the pod's own
	Name      string
	Port      string // of the pods: a number, or the name of one of the service's ports
}

// Options of a Resolver; the zero Options are right inside a cluster.
type Options struct {
	// API is the URL of the API server; "" is what the cluster tells every pod.
	API string
	// Account is the folder with the service account's token, ca.crt and namespace; "" is where the cluster puts it.
	Account string
	Logger  *slog.Logger // nil is none
}

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount"

	listTimeout  = 10 * time.Second
	watchFor     = 4 * time.Minute // then the API server ends a watch, and another one goes on where it ended
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	settled      = 10 * time.Second // a watch that held so long was a good one
	soonest      = 5 * time.Second
	warnEvery    = time.Minute // between two warnings while it fails
	maxEndpoints = 1024        // of a service
)

// Resolver finds the endpoints of one service.
type Resolver struct {
	service Service
	api     *api
	log     *slog.Logger
	soonest time.Duration // between two lists that failing connections ask for

	slices map[string]slice // by name
	last   []string         // the addresses that were told
	since  time.Time        // of the outage; zero while there is none
	told   time.Time
}

// New makes a Resolver for use inside a cluster. It asks nobody yet.
func New(s Service, o Options) (*Resolver, error) {
	a, err := newAPI(o)
	if err != nil {
		return nil, err
	}
	if s.Namespace == "" {
		if s.Namespace, err = a.namespace(); err != nil {
			return nil, fmt.Errorf("endpoints k8s:///%s:%s name no namespace, and the pod's own is not known: %w; write k8s:///namespace/%s:%s", s.Name, s.Port, err, s.Name, s.Port)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a.service = s
	r := &Resolver{service: s, api: a, log: o.Logger.With("endpoints", s.String()), soonest: soonest}
	return r, nil
}

func (s Service) String() string { return "k8s:///" + s.Namespace + "/" + s.Name + ":" + s.Port }

// String is the service as the configuration writes it.
func (r *Resolver) String() string { return r.service.String() }

// ServerName is what TLS expects of the pods: the service's name within the cluster.
func (r *Resolver) ServerName() string { return r.service.Name + "." + r.service.Namespace + ".svc" }

// Watch calls set with all addresses, host:port, sorted, at least one, as soon as they are known and again when they have
// changed, until ctx ends. A receive from again has them listed anew, at most every five seconds.
func (r *Resolver) Watch(ctx context.Context, again <-chan struct{}, set func(addresses []string)) {
	defer r.api.close()
	r.last = nil
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := r.once(ctx, again, set)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= settled {
			pause = firstPause
		}
		if err == nil {
			continue // asked to list anew
		}
		if !errors.Is(err, errGone) {
			r.failed(err)
		}
		if !wait(ctx, pause/2+rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// once lists the slices and follows their changes for as long as that goes well. nil: there is reason to list anew.
func (r *Resolver) once(ctx context.Context, again <-chan struct{}, set func([]string)) error {
	version, err := r.list(ctx)
	if err != nil {
		return err
	}
	r.publish(set)
	// Whatever a failed connection means, the list that has just come knows already.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if r.listenFor(ctx, again) {
			cancel()
		}
	}()
	defer func() { cancel(); <-asked }()
	for {
		began := time.Now()
		version, err = r.watch(ctx, version, set)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case time.Since(began) < firstPause: // an API server that ends every watch at once
			if !wait(ctx, firstPause) {
				return nil
			}
		}
	}
}

// listenFor reports true once something asks by again, not before r.soonest has passed, and false when ctx ends.
func (r *Resolver) listenFor(ctx context.Context, again <-chan struct{}) bool {
	quiet := time.NewTimer(r.soonest)
	defer quiet.Stop()
	over := false
	for {
		select {
		case <-again:
			if over {
				return true
			}
		case <-quiet.C:
			over = true
		case <-ctx.Done():
			return false
		}
	}
}

// list replaces what is known of the slices, and gives the version from which to watch.
func (r *Resolver) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, err := r.api.list(ctx)
	if err != nil {
		return "", err
	}
	r.slices = make(map[string]slice, len(all.Items))
	for _, s := range all.Items {
		r.slices[s.Metadata.Name] = s
	}
	return all.Metadata.ResourceVersion, nil
}

// watch follows changes from version on until the API server ends the watch, and gives the version to go on from.
func (r *Resolver) watch(ctx context.Context, version string, set func([]string)) (string, error) {
	length := watchFor + rand.N(watchFor/4)
	ctx, cancel := context.WithTimeout(ctx, length+listTimeout)
	defer cancel()
	body, err := r.api.watch(ctx, version, length)
	if err != nil {
		return version, err
	}
	defer func() { _ = body.Close() }()
	return follow(body, version, r.slices, func() { r.publish(set) })
}

// publish tells the addresses where they have changed.
func (r *Resolver) publish(set func([]string)) {
	found, err := addresses(r.slices, r.service.Port)
	if err != nil {
		r.failed(err)
		return
	}
	if !r.since.IsZero() {
		r.log.Info("the endpoints of the service are known again", "out_for", time.Since(r.since).String())
		r.since = time.Time{}
	}
	if !slices.Equal(found, r.last) {
		r.last = found
		set(found)
	}
}

// failed logs an outage: at once, and then every warnEvery.
func (r *Resolver) failed(err error) {
	now := time.Now()
	if r.since.IsZero() {
		r.since, r.told = now, time.Time{}
	}
	if now.Sub(r.told) < warnEvery {
		return
	}
	r.told = now
	r.log.Warn("the endpoints of the service cannot be had; those known before stay in use", "known", strings.Join(r.last[:min(len(r.last), 8)], ", "), "since", r.since, "error", err)
}

// wait waits for d, and reports false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
