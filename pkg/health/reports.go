package health

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What traffic shows counts at once: it does not wait for the next probe, and the next probes decide whether it stays so.

// hot is how long a version that traffic found not to be ready is asked for at the shortest interval.
const hot = time.Minute

// Refused takes the endpoint out for all models: a connection to it was refused. It is asked at once whether that
// is so.
func (p *Prober) Refused(endpoint string, why error) { p.out(endpoint, byRefusal, why) }

// Leaving takes the endpoint out for all models: it said that it is stopping. What it has begun it will finish.
func (p *Prober) Leaving(endpoint string, why error) { p.out(endpoint, byLeaving, why) }

func (p *Prober) out(endpoint string, how outage, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[endpoint]
	if e == nil || e.live == inference.NotReady {
		return
	}
	e.good = 0
	e.setLive(inference.NotReady, how, why)
	wake(e.askLife)
}

// Doubt has the endpoint asked at once whether it lives: a connection to it broke.
func (p *Prober) Doubt(endpoint string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e := p.endpoints[endpoint]; e != nil && e.live != inference.NotReady {
		wake(e.askLife)
	}
}

// NotReady takes one version of a model on one endpoint out: a call was told that it is not ready there. It is back
// after good probes in a row, as after bad ones.
func (p *Prober) NotReady(endpoint, model, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[endpoint]
	if e == nil || e.live == inference.NotReady || p.ctx.Err() != nil {
		return
	}
	k, now := key{model, version}, time.Now()
	p.plan[k] = struct{}{} // until the next plan says otherwise
	p.kicked[k] = now
	e.want(k, now)
	n := e.entry(k)
	n.good, n.bad, n.probed, n.hot = 0, most, p.at(now), p.at(now.Add(hot))
	if n.state != inference.NotReady {
		wake(e.readIndex) // has it been unloaded, or has it failed?
	}
	e.setState(n, inference.NotReady)
	e.hurry(n)
}

// Out reports whether the endpoint is out for all models, and if so, whether it is so because it does not answer any
// more.
func (p *Prober) Out(endpoint string) (out, silent bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.endpoints[endpoint]
	if e == nil || e.live != inference.NotReady {
		return false, false
	}
	return true, e.how == bySilence
}

// Draining reports whether the endpoint is out because it said that it is stopping.
func (p *Prober) Draining(endpoint string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.endpoints[endpoint]
	return e != nil && e.live == inference.NotReady && e.how == byLeaving
}
