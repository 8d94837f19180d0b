package admit

// waiter is a call that waits for its place.
type waiter struct {
	rank         int
	in           bool // in a line
	older, newer *waiter
	settled      chan struct{} // closed when it has left the line
	err          error         // why; nil: it has a place. Written before settled is closed
}

// line is those that wait, by when they came.
type line struct{ oldest, newest *waiter }

// push puts w at the newest end.
func (q *line) push(w *waiter) {
	w.in, w.older = true, q.newest
	if q.newest != nil {
		q.newest.newer = w
	} else {
		q.oldest = w
	}
	q.newest = w
}

// remove takes w out.
func (q *line) remove(w *waiter) {
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		q.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		q.newest = w.older
	}
	w.in, w.older, w.newer = false, nil, nil
}
