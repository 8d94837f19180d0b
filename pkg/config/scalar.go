package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Scalars of the file that have a form of their own. They keep what was written, numbers included, so that the
// mistake can speak of the form rather than of YAML's types.
type (
	// Duration is a length of time: a number and a unit, such as 500ms, 30s or 1m30s.
	Duration string
	// Size is a number of bytes: a number and KiB, MiB or GiB, or plain bytes.
	Size string
	// Percent is a share, such as 5%.
	Percent string
	// Rate is a count per time, such as 20/s or 500/min.
	Rate string
	// Cost is what a call takes from a bucket: 1, rows or KiB.
	Cost string
	// Address is a place to listen or to connect to, host:port.
	Address string
	// Version is a model's version: a positive number, quoted or not.
	Version string
	// OneOrMany is one text, or a list of texts.
	OneOrMany []string
)

// Bounds of what a file may say.
const (
	maxDuration = 24 * time.Hour
	maxSize     = math.MaxInt32 // protobuf and gRPC count a message's bytes in 31 bits
)

var errDuration = errors.New("must be a length of time above zero and up to 24h, such as 500ms, 30s or 1m30s")

// parse gives the length of time, above zero.
func (d Duration) parse() (time.Duration, error) {
	v, err := time.ParseDuration(string(d))
	if err != nil || v <= 0 || v > maxDuration {
		return 0, errDuration
	}
	return v, nil
}

// parseZero is parse for a length that may be zero.
func (d Duration) parseZero() (time.Duration, error) {
	if d == "0" || d == "0s" {
		return 0, nil
	}
	return d.parse()
}

var sizeUnits = []struct {
	unit  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

// parse gives the number of bytes, above zero.
func (s Size) parse() (int, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(string(s), u.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimRight(digits, " "), 10, 64)
		if err != nil || n <= 0 {
			break
		}
		if n > maxSize/u.bytes {
			return 0, errors.New("must be at most 2GiB less one byte (2047MiB), the most a message can have")
		}
		return int(n * u.bytes), nil
	}
	return 0, errors.New("must be a number of bytes above zero, such as 512KiB or 64MiB")
}

// parse gives the share, above 0 and at most 1.
func (p Percent) parse() (float64, error) {
	number, ok := strings.CutSuffix(string(p), "%")
	v, err := strconv.ParseFloat(strings.TrimRight(number, " "), 64)
	if !ok || err != nil || !(v > 0 && v <= 100) || strings.Trim(number, "0123456789. ") != "" {
		return 0, errors.New("must be a share above 0% and at most 100%, such as 50%")
	}
	return v / 100, nil
}

var rateUnits = map[string]float64{"s": 1, "min": 60, "h": 3600}

// maxRate is in tokens a second; what a bucket holds is counted exactly up to 2^53 of them.
const maxRate = 1e9

// parse gives the rate in tokens a second, above zero.
func (r Rate) parse() (float64, error) {
	count, unit, _ := strings.Cut(string(r), "/")
	seconds, ok := rateUnits[unit]
	n, err := strconv.ParseFloat(count, 64)
	if !ok || err != nil || !(n > 0) || strings.Trim(count, "0123456789.") != "" {
		return 0, errors.New("must be a count above zero for each s, min or h, such as 20/s, 500/min or 1000/h")
	}
	if n/seconds > maxRate {
		return 0, errors.New("must be at most 1000000000/s")
	}
	return n / seconds, nil
}

// parse gives the cost; none is written for one token.
func (c Cost) parse() (inference.Cost, error) {
	for cost := inference.CostOne; cost <= inference.CostKiB; cost++ {
		if cost.String() == string(c) {
			return cost, nil
		}
	}
	return 0, fmt.Errorf("must be 1, rows or KiB, not %q", clip(string(c)))
}

// parse gives the version in plain decimal.
func (v Version) parse() (string, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != string(v) {
		return "", errors.New("must be a positive number")
	}
	return string(v), nil
}

// checkHostPort says what is wrong with an address to connect to, or with one to listen on, which may leave out the
// host and have port 0 for any.
func checkHostPort(addr string, listen bool) error {
	host, port, ok := cutPort(addr)
	if !ok {
		if listen {
			return errors.New("must be host:port or :port, such as :8080")
		}
		return errors.New("must be host:port, such as triton:8001")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return fmt.Errorf("port %q must be a number from 1 to 65535", clip(port))
	}
	if host == "" && listen || validHost(host) {
		return nil
	}
	if host == "" {
		return errors.New("must name a host before the port, such as triton:8001")
	}
	return fmt.Errorf("%q is no host name or address", clip(host))
}

// cutPort splits host:port; an IPv6 address is in brackets, which are cut off.
func cutPort(addr string) (host, port string, ok bool) {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = addr[:i], addr[i+1:]
	if inner, found := strings.CutPrefix(host, "["); found {
		inner, found = strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		return inner, port, found && err == nil && ip.Is6()
	}
	return host, port, !strings.ContainsAny(host, ":/")
}

func validHost(host string) bool {
	if len(host) == 0 || len(host) > 253 {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsValid()
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if len(label) == 0 || len(label) > 63 || strings.Trim(label, nameChars) != "" {
			return false
		}
	}
	return true
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// clip keeps a foreign text short enough for a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
