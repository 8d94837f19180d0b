// Package calm is for tests of how long something takes, which cannot be moved into testing/synctest because processes,
// sockets or processors take part. A machine that stalls makes any one measurement long; what is wrong with the product
// does so every time. So a measurement is made again until one of them holds.
package calm

import "testing"

// attempts at a measurement. Even where every second one is spoilt, fewer than one test in a thousand fails by that.
const attempts = 12

// Moment runs measure until it gives no error, and fails the test when it never does. What must hold whatever the machine
// does belongs to t, not to the error.
func Moment(t testing.TB, measure func() error) {
	t.Helper()
	var err error
	for n := range attempts {
		if err = measure(); err == nil || t.Failed() {
			return
		}
		t.Logf("attempt %d: %v", n+1, err)
	}
	t.Errorf("not in one of %d attempts: %v", attempts, err)
}
