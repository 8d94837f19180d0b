package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	envRedis = "GATEWAY_REDIS_ADDRESS"

	defaultPrefix       = "model-gateway"
	defaultRedisTimeout = 20 * time.Millisecond
	minRedisTimeout     = time.Millisecond
	maxRedisTimeout     = time.Second
	maxRedisAddresses   = 100
	maxPrefix           = 128
	unixScheme          = "unix://"
	maxSocket           = 107 // bytes of a path, which is what the kernel takes
	maxReplicas         = 1000
)

// redis compiles the section `redis`, or what the environment says in its place; nil when neither is there.
func (c *compiler) redis(f *RedisFile) {
	fromEnv := strings.TrimSpace(c.env(envRedis))
	if f == nil && fromEnv == "" || c.mistaken("redis") {
		return
	}
	if f == nil {
		f = &RedisFile{}
	}
	r := &Redis{
		Mode: cmp.Or(f.Mode, RedisStandalone), Master: f.Master, User: f.User,
		Prefix:   setting(c, "redis.prefix", f.Prefix, "", defaultPrefix, parsePrefix),
		Timeout:  setting(c, "redis.timeout", f.Timeout, "", defaultRedisTimeout, parseRedisTimeout),
		WhenDown: named(f.WhenDown, inference.DownClosed, inference.DownLocal),
	}
	c.redisAddresses(f.Address, fromEnv, r)
	c.redisMode(r)
	c.redisSocket(r)
	if c.has("redis.user") && (f.User == "" || len(f.User) > maxName || strings.ContainsFunc(f.User, notPrintable)) {
		c.check("redis.user", fmt.Errorf("must be 1 to %d printable characters without spaces; remove it for the default user", maxName))
	}
	if c.has("redis.password_file") {
		r.Password, _ = c.secret("redis.password_file", f.PasswordFile)
	}
	var before *ClientTLS
	if c.before != nil && c.before.Redis != nil {
		before = c.before.Redis.TLS
	}
	r.TLS = c.clientTLS("redis.tls", f.TLS, before)
	c.cfg.Redis, c.whenDown = r, r.WhenDown
}

// redisAddresses compiles the addresses: the environment's, else the file's.
func (c *compiler) redisAddresses(list OneOrMany, fromEnv string, r *Redis) {
	const at = "redis.address"
	for i, a := range list {
		path := fmt.Sprintf("%s[%d]", at, i)
		if !c.has(path) {
			path = at // one text in place of a list
		}
		switch err := checkRedisAddress(a); {
		case c.mistaken(path):
		case err != nil:
			c.wrong(path, "%s", err)
		case slices.Contains(r.Addresses, a):
			c.wrong(path, "%s is in the list already", clip(a))
		}
		r.Addresses = append(r.Addresses, a)
	}
	if fromEnv != "" {
		r.Addresses = nil
		for a := range strings.SplitSeq(fromEnv, ",") {
			a = strings.TrimSpace(a)
			if err := checkRedisAddress(a); err != nil {
				c.badEnv(envRedis, err)
				return
			}
			if !slices.Contains(r.Addresses, a) {
				r.Addresses = append(r.Addresses, a)
			}
		}
	}
	switch n := len(r.Addresses); {
	case n == 0:
		c.check(at, errors.New("must be given: host:port, or a list of them; or set GATEWAY_REDIS_ADDRESS"))
	case n > maxRedisAddresses:
		c.check(at, fmt.Errorf("has %d entries; at most %d", n, maxRedisAddresses))
	}
}

func checkRedisAddress(a string) error {
	if path, ok := strings.CutPrefix(a, unixScheme); ok {
		return checkSocket(path)
	}
	if strings.Contains(a, "://") {
		return errors.New("must be host:port, such as redis:6379, or unix:///path, not a URL; user, password_file and tls are fields of their own")
	}
	if _, _, ok := cutPort(a); !ok {
		return errors.New("must be host:port, such as redis:6379")
	}
	return checkHostPort(a, false)
}

// checkSocket checks the path of a unix socket. Whether there is one is not looked at: Redis may start later.
func checkSocket(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || len(path) > maxSocket || strings.ContainsFunc(path, notPrintable) {
		return fmt.Errorf("must be unix:// and the path of a socket from the root, such as unix:///run/redis.sock, of at most %d bytes without spaces", maxSocket)
	}
	return nil
}

// redisSocket checks that a unix socket is what is configured for it: one server on this machine.
func (c *compiler) redisSocket(r *Redis) {
	if !slices.ContainsFunc(r.Addresses, func(a string) bool { return strings.HasPrefix(a, unixScheme) }) {
		return
	}
	if r.Mode != RedisStandalone && !c.mistaken("redis.mode") {
		c.check("redis.mode", fmt.Errorf("is %s, whose servers are reached by host:port, not over a unix socket; write mode: standalone, or other addresses", r.Mode))
	}
	if c.has("redis.tls") {
		c.check("redis.tls", errors.New("is for connections that others could listen to, which a unix socket is not; remove it"))
	}
}

// redisMode checks that the fields are those of the mode.
func (c *compiler) redisMode(r *Redis) {
	if c.mistaken("redis.mode") {
		return
	}
	if r.Mode == RedisStandalone && len(r.Addresses) > 1 {
		c.check("redis.mode", errors.New("is standalone, what absent means too, but there are several addresses; write mode: cluster or mode: sentinel, or one address"))
	}
	switch {
	case r.Mode == RedisSentinel && r.Master == "":
		c.check("redis.master", errors.New("must be given with mode sentinel: the name that the sentinels watch, such as mymaster"))
	case r.Mode == RedisSentinel && (len(r.Master) > maxName || strings.ContainsFunc(r.Master, notPrintable)):
		c.check("redis.master", fmt.Errorf("must be 1 to %d printable characters without spaces", maxName))
	case r.Mode != RedisSentinel && c.has("redis.master"):
		c.check("redis.master", fmt.Errorf("is for mode sentinel, and the mode is %s; remove it, or write mode: sentinel", r.Mode))
	}
}

func parsePrefix(s string) (string, error) {
	if s == "" || len(s) > maxPrefix || strings.Trim(s, nameChars+"./:") != "" || strings.HasSuffix(s, ":") {
		return "", fmt.Errorf("must be 1 to %d letters, digits, dots, slashes, dashes, underscores or colons, with none at its end, and no braces: those choose the slot of a cluster", maxPrefix)
	}
	return s, nil
}

func parseRedisTimeout(d Duration) (time.Duration, error) {
	v, err := d.parse()
	if err != nil || v < minRedisTimeout || v > maxRedisTimeout {
		return 0, errors.New("must be 1ms to 1s: it is what a call waits at most for Redis")
	}
	return v, nil
}

// replicas compiles the field `replicas`.
func (c *compiler) replicas(n int) {
	c.cfg.Replicas = 1
	if !c.has("replicas") || c.mistaken("replicas") {
		return
	}
	if n < 1 || n > maxReplicas {
		c.wrong("replicas", "must be 1 to %d", maxReplicas)
		return
	}
	c.cfg.Replicas = n
}
