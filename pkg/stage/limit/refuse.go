package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// fault is what the client is told by an entry that refuses: which limit, whose bucket, and when to come back.
func (e *entry) fault() *fault.Fault {
	a := e.account
	rate, subject := a.rateNow(), strings.ToValidUTF8(shown(e.limit.Per, e.model, a.subject), "?") // a message on the wire is UTF-8
	switch e.verdict {
	case above:
		return fault.New(fault.CostAboveBurst, "limit %q: this call costs %s tokens (%s), more than the %s that its bucket ever holds; "+
			"send less at a time, or have the limit's burst raised", e.limit.Name, number(e.cost), unit(e.limit.Cost), number(rate.Burst))
	case closed:
		return fault.New(fault.LimiterDown, "limit %q cannot be checked now and is set to refuse calls then; try again", e.limit.Name)
	case paid, ask, short:
	}
	wait := min(max(e.wait, time.Millisecond), slowestRate)
	f := fault.New(fault.RateLimited, "limit %q allows %s with bursts of %s for %s, which is used up; try again in %v",
		e.limit.Name, Words(rate.PerSecond), number(rate.Burst), subject, rounded(wait))
	f.RetryAfter = wait
	f.Quota = &fault.Quota{Limit: e.limit.Name, Subject: subject, Burst: rate.Burst, Remaining: e.left, Reset: full(rate, e.left)}
	return f
}

// full is how long a bucket takes to fill up.
func full(rate inference.Rate, left float64) time.Duration {
	return untilPaid(rate.PerSecond, max(rate.Burst-left, 0))
}

// rateNow is the rate of the bucket.
func (a *account) rateNow() inference.Rate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rate
}

// Words says a rate as people do: "20 a second", "500 a minute".
func Words(perSecond float64) string {
	for _, u := range [...]struct {
		seconds float64
		name    string
	}{{1, "second"}, {60, "minute"}, {3600, "hour"}} {
		if n := perSecond * u.seconds; n >= 1 && nearlyWhole(n) {
			return number(n) + " a " + u.name
		}
	}
	return number(perSecond) + " a second"
}

func nearlyWhole(n float64) bool {
	const near = 1e-6
	rest := n - float64(int64(n+0.5))
	return rest < near && rest > -near
}

// number writes a count of tokens without digits that nobody reads.
func number(n float64) string {
	if nearlyWhole(n) {
		return strconv.FormatInt(int64(n+0.5), 10)
	}
	return fmt.Sprintf("%.3g", n)
}

func unit(c inference.Cost) string {
	switch c {
	case inference.CostRows:
		return "one for each row"
	case inference.CostKiB:
		return "one for each KiB"
	case inference.CostOne:
	}
	return "one for each call"
}

// rounded drops the digits of a wait that nobody reads, upwards.
func rounded(d time.Duration) time.Duration {
	to := time.Millisecond
	if d > 10*time.Second {
		to = time.Second
	}
	return (d + to - 1) / to * to
}
