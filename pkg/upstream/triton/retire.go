package triton

import (
	"context"
	"slices"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// linger is how long a retired upstream still takes calls: those that had been sent its way before it was taken
// out of the configuration, and had not reached it yet.
const linger = time.Second

// Retire closes an upstream that the configuration no longer names, in the background. It is no longer probed, nor are
// its addresses looked up. Calls and messages of streams that are under way finish; connections close as they
// empty, and whatever is left after grace is ended. A call that comes when they have, and a second has passed, gets a
// fault EndpointLost. The channel is closed once nothing is left; Close need not be called, but ends it all at once.
// A second Retire changes nothing and gives the same channel.
func (u *Upstream) Retire(grace time.Duration) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.leaving != nil {
		return u.leaving
	}
	u.leaving = make(chan struct{})
	if u.shut {
		close(u.leaving)
		return u.leaving
	}
	u.stop() // from here on no endpoint comes or goes
	u.retire.Go(func() {
		defer close(u.leaving)
		u.health.Close()
		u.empty(grace)
		u.shutDown()
	})
	return u.leaving
}

// empty waits until the last call has left, for grace at most, or until Close.
func (u *Upstream) empty(grace time.Duration) {
	late := time.NewTimer(grace)
	defer late.Stop()
	lingered := time.NewTimer(linger)
	defer lingered.Stop()
	select {
	case <-lingered.C:
	case <-late.C:
		return
	case <-u.life.Done():
		return
	}
	u.mu.Lock()
	all := append(slices.Clone(u.list()), u.retired...)
	u.mu.Unlock()
	for _, e := range all {
		e.retire()
	}
	for _, e := range all {
		for _, c := range *e.conns.Load() { // no more come to an endpoint that has been retired
			select {
			case <-c.ended:
			case <-late.C:
				u.log.Warn("calls to an upstream that was taken out are cut, since they took too long to finish", "upstream", u.name, "grace", grace)
				return
			case <-u.life.Done():
				return
			}
		}
	}
}

// Cut ends what is under way, and what comes later, with a fault ShuttingDown: the gateway stops, and has no time left to
// wait for it. Probes end too. Close has to be called all the same.
func (u *Upstream) Cut() {
	u.cut.Store(true)
	u.health.Close() // what is closed now must not be taken for an outage
	u.mu.Lock()
	all := append(slices.Clone(u.list()), u.retired...)
	u.mu.Unlock()
	for _, e := range all {
		e.shut()
	}
}

// stopped is the fault of a call that Cut has ended, in place of err, which tells how that came about; and any other err
// as it is.
func (u *Upstream) stopped(ctx context.Context, err error) error {
	if err == nil || !u.cut.Load() || ctx.Err() != nil {
		return err
	}
	switch fault.Of(err).Kind {
	case fault.EndpointLost, fault.UpstreamUnavailable, fault.Draining, fault.NoEndpoint, fault.ModelNotReady, fault.Cancelled:
		return fault.Wrap(fault.ShuttingDown, err, "the gateway stops, and the call was not answered in time; send it again elsewhere")
	default:
		return err
	}
}

// Close ends everything: probes, streams and connections, calls under way included, and what Retire has left.
// It returns when nothing is left.
func (u *Upstream) Close() {
	u.shutDown()
	u.retire.Wait()
}

func (u *Upstream) shutDown() {
	u.closing.Do(func() {
		u.mu.Lock()
		u.shut = true
		u.end()
		all := append(slices.Clone(u.list()), u.retired...)
		u.retired = nil
		u.mu.Unlock()
		u.health.Close()
		for _, e := range all {
			e.shut()
		}
		u.tasks.Wait()
	})
}
