package scripts

import (
	"context"
	"io"
)

// Port is the store as the admin port shows it.
type Port struct{ Store *Store }

// List gives all scripts.
func (p Port) List() any { return p.Store.List() }

// Show gives one, with its text and history; false where there is none.
func (p Port) Show(name string) (any, bool) { return p.Store.Show(name) }

// Hash is that of the version of a script that runs; "" where none does.
func (p Port) Hash(name string) string { return p.Store.Hash(name) }

// Put is Store.Put; scope says who follows.
func (p Port) Put(ctx context.Context, name string, source []byte, who string, dry bool) (answer any, scope string, err error) {
	a, err := p.Store.Put(ctx, name, source, who, dry)
	return said(a, err), a.Scope, err
}

// Rollback is Store.Rollback; scope says who follows.
func (p Port) Rollback(ctx context.Context, name, to, who string) (answer any, scope string, err error) {
	a, err := p.Store.Rollback(ctx, name, to, who)
	return said(a, err), a.Scope, err
}

// Export writes the recorded calls.
func (p Port) Export(w io.Writer) error { return p.Store.Export(w) }

func said(a Answer, err error) Answer {
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
