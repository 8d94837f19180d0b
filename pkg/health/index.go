package health

import (
	"context"
	"slices"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// indexLoop reads the repository index again and again. A reading that fails changes nothing.
func (e *endpoint) indexLoop() {
	for {
		ctx, cancel := context.WithTimeout(e.ctx, indexFactor*e.p.opts.Timeout)
		answer, err := e.server().RepositoryIndex(ctx, &tritonpb.RepositoryIndexRequest{})
		cancel()
		if e.ctx.Err() != nil {
			return
		}
		if err == nil {
			e.list(answer.GetModels())
		}
		if !sleep(e.ctx, e.p.opts.IndexEvery, e.readIndex) {
			return
		}
	}
}

// list takes a whole index. It decides for versions that are not probed; where it contradicts a probe, a probe is made.
func (e *endpoint) list(rows []*tritonpb.RepositoryIndexResponse_ModelIndex) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.live == inference.NotReady {
		return // read before it went out
	}
	if !e.indexed {
		e.indexed = true
		e.p.allChanged = true
		defer e.p.signal()
	}
	seen := make(map[*entry]struct{}, len(rows))
	for _, row := range rows {
		if row.GetVersion() == "" {
			continue // a folder that has never been loaded
		}
		n := e.entry(key{row.GetName(), row.GetVersion()})
		seen[n] = struct{}{}
		e.listRow(n, row)
	}
	for _, versions := range e.models {
		for _, n := range slices.Clone(versions) { // drop changes the list
			if _, there := seen[n]; !there && n.listed {
				e.listRow(n, nil)
				if !n.wanted {
					e.drop(n)
				}
				e.p.signal()
			}
		}
	}
}

// listRow takes what the index says of one version; nil says that it is not listed.
func (e *endpoint) listRow(n *entry, row *tritonpb.RepositoryIndexResponse_ModelIndex) {
	listed, unloaded, state := row != nil, row == nil, inference.NotReady
	switch row.GetState() {
	case "READY":
		state = inference.Ready
	case "LOADING":
		state = n.state // the version before may still serve
	case "UNLOADING", "":
		unloaded = true
	case "UNAVAILABLE":
		unloaded = row.GetReason() == "unloaded"
	}
	if e.dead(n) {
		state = inference.NotReady
	}
	if listed != n.listed || unloaded != n.unloaded {
		n.listed, n.unloaded = listed, unloaded
		e.p.changed[n.model] = struct{}{}
		e.p.signal()
	}
	if !e.probedLately(n) {
		e.setState(n, state)
	} else if state != n.state {
		e.hurry(n)
	}
}

// probedLately reports whether the last probe of n says more than the index does.
func (e *endpoint) probedLately(n *entry) bool {
	return n.wanted && n.probed != 0 && e.p.since(n.probed) < 2*max(e.p.opts.Every, e.stretched())+e.p.opts.Timeout
}
