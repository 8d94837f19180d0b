package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	defaultMaxReads       = 256
	maxMaxReads           = 100_000
	envMaxBytesHeld       = "GATEWAY_MAX_BYTES_HELD"
	envMaxReads           = "GATEWAY_MAX_READS"
	maxConcurrency        = 100_000
	maxQueue              = 100 * time.Millisecond
	defaultQueue          = maxQueue
	maxHeld         int64 = 1 << 50
)

// held compiles how much of messages is held, and read, at once.
func (c *compiler) held(f *ListenFile) {
	l := &c.cfg.Listen
	l.MaxBytesHeld = setting(c, "listen.max_bytes_held", f.MaxBytesHeld, envMaxBytesHeld, 0, Size.parseHeld)
	if l.MaxBytesHeld > 0 && l.MaxBytesHeld < int64(l.MaxMessage) && !c.mistaken("listen.max_message") {
		err := fmt.Errorf("is %d bytes, less than one message may have (listen.max_message, %d): the largest could never be read; raise it, or lower that", l.MaxBytesHeld, l.MaxMessage)
		switch {
		case c.has("listen.max_bytes_held"):
			c.check("listen.max_bytes_held", err)
		case c.env(envMaxBytesHeld) != "":
			c.badEnv(envMaxBytesHeld, err)
		}
	}
	l.MaxReads = defaultMaxReads
	if c.has("listen.max_reads") {
		l.MaxReads = c.count("listen.max_reads", f.MaxReads, defaultMaxReads, maxMaxReads)
	}
	if text := c.env(envMaxReads); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxMaxReads {
			c.badEnv(envMaxReads, fmt.Errorf("must be 1 to %d", maxMaxReads))
		} else {
			l.MaxReads = n
		}
	}
}

// parseHeld gives the number of bytes, above zero; unlike those of a message they may be as many as a machine has.
func (s Size) parseHeld() (int64, error) {
	text := string(s)
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimRight(digits, " "), 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/u.bytes || n*u.bytes > maxHeld {
			break
		}
		return n * u.bytes, nil
	}
	return 0, errors.New("must be a number of bytes above zero, such as 256MiB or 4GiB")
}

// concurrency compiles the section `concurrency` of a model; without one there is no bound.
func (c *compiler) concurrency(path string, f *ConcurrencyFile) inference.Concurrency {
	if f == nil || c.mistaken(path) {
		return inference.Concurrency{}
	}
	k := inference.Concurrency{Adaptive: f.Adaptive, Max: c.count(path+".max", f.Max, 0, maxConcurrency)}
	if !k.Adaptive && !c.has(path+".max") {
		c.check(path, errors.New("bounds nothing: add max, or adaptive: true, which finds the bound by itself; or remove it"))
		return inference.Concurrency{}
	}
	k.Queue = setting(c, path+".queue", f.Queue, "", defaultQueue, func(d Duration) (time.Duration, error) {
		v, err := d.parseZero()
		if err == nil && v > maxQueue {
			err = fmt.Errorf("must be at most %s: calls that wait for longer are better refused, and sent again", maxQueue)
		}
		return v, err
	})
	return k
}
