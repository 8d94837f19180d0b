package httpfront

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// lastUse is the key of when a connection is old enough to be left.
type lastUse struct{}

// begin notes how long a connection will be used. No two that began together end together.
func (f *Front) begin(ctx context.Context, _ net.Conn) context.Context {
	if f.MaxAge <= 0 {
		return ctx
	}
	age := f.MaxAge - f.MaxAge/10 + rand.N(f.MaxAge/5+1)
	return context.WithValue(ctx, lastUse{}, time.Now().Add(age))
}

// Leave has every client told, with its next answer, to send nothing more over its connection. Requests are served on.
// After it, Shutdown closes few connections on which a request may just be under way.
func (f *Front) Leave() { f.leaving.Store(true) }

// part tells the client to use another connection from now on, where that is due.
func (f *Front) part(w http.ResponseWriter, r *http.Request) {
	until, aged := r.Context().Value(lastUse{}).(time.Time)
	if f.leaving.Load() || aged && time.Now().After(until) {
		w.Header().Set("Connection", "close")
	}
}
