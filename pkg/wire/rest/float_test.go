package rest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// decimals gives numbers that are hard to round, and many that are not.
func decimals() []string {
	all := []string{
		"0", "-0", "0.0", "-0.0e5", "1", "0.1", "1e22", "1e23", "9007199254740993", "9007199254740991e22", "1e-400", "-1e-400", "0e999999999999999999999",
		"1.7976931348623157e308", "4.9e-324", "2.4703282292062327e-324", "3.4028235e38", "3.4028235677973366e38", "3.402823e38", "1.401298464324817e-45", "7e-46", "1.1754943e-38", "1.17549435e-38",
		"16777217", "16777219", "16777217.0000000000000000000001", "16777216.9999999999999999999999", "123456789012345678901234567890", "0.000000000000000000000000000000123456789012345678901",
		"12345678", "123456789", "0.12345678", "0.1234567812345678", "1234567812345678.12345678", "00000000", "0.00000000000000000000", "100000000000000000000000000.5",
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 40_000 {
		var s string
		switch r.IntN(5) {
		case 0:
			s = strconv.FormatFloat(math.Float64frombits(r.Uint64()), 'e', r.IntN(25)-1, 64)
		case 1:
			s = strconv.FormatFloat(float64(math.Float32frombits(r.Uint32())), 'g', r.IntN(25)-1, 32)
		case 2: // the exact middle between two float32s, and its neighbours
			f := math.Float32frombits(r.Uint32()&^(0xff<<23) | (uint32(r.IntN(40)+107) << 23))
			g := math.Nextafter32(f, float32(math.Inf(1)))
			m := new(big.Float).SetPrec(200).Add(big.NewFloat(float64(f)), big.NewFloat(float64(g)))
			m.Quo(m, big.NewFloat(2))
			s = m.Text('f', 60)
			if at := r.IntN(len(s)-2) + 2; s[at] != '.' && r.IntN(2) == 0 {
				s = s[:at] + string('0'+byte(r.IntN(10))) + s[at+1:]
			}
		case 3:
			s = strconv.FormatUint(r.Uint64()>>r.IntN(64), 10) + "." + strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
		case 4:
			s = strconv.FormatFloat(r.Float64(), 'f', r.IntN(30), 64)
		}
		if !strings.ContainsAny(s, "NI") { // no NaN, no Inf
			all = append(all, s)
		}
	}
	return all
}

func TestNumbersAreRoundedAsTheLibraryDoes(t *testing.T) {
	fast := 0
	for _, text := range decimals() {
		s := scanner{b: []byte(text + ",")}
		d, ok := s.decimal()
		if _, err := strconv.ParseFloat(text, 64); text == "00000000" {
			if ok {
				t.Error("00000000 is no JSON number")
			}
			continue
		} else if !ok || string(d.token) != text {
			t.Fatalf("%q (%v) was read as %q, %v", text, err, d.token, ok)
		}
		want, wantErr := strconv.ParseFloat(text, 64)
		got, err := d.float64()
		if math.Float64bits(got) != math.Float64bits(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("FP64 %s: %v %v, want %v %v", text, got, err, want, wantErr)
		}
		want, wantErr = strconv.ParseFloat(text, 32)
		got32, err := d.float32()
		if math.Float32bits(got32) != math.Float32bits(float32(want)) || (err == nil) != (wantErr == nil) {
			t.Errorf("FP32 %s: %v %v, want %v %v", text, got32, err, want, wantErr)
		}
		if _, ok := d.scaled(); ok {
			fast++
		}
	}
	if fast < 1000 {
		t.Errorf("only %d numbers took the fast way, so this tests nothing", fast)
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range decimals()[:60] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := scanner{b: []byte(text)}
		whole := scanner{b: []byte(text)}
		d, ok := s.decimal()
		token, _, ok2 := whole.number()
		if ok != ok2 || string(token) != string(d.token) {
			t.Fatalf("%q: read as %q %v and as %q %v", text, d.token, ok, token, ok2)
		}
		if !ok {
			return
		}
		want, wantErr := strconv.ParseFloat(string(token), 32)
		got, err := d.float32()
		if math.Float32bits(got) != math.Float32bits(float32(want)) || (err == nil) != (wantErr == nil) {
			t.Errorf("FP32 %s: %v %v, want %v %v", token, got, err, want, wantErr)
		}
		want, _ = strconv.ParseFloat(string(token), 64)
		if got, _ := d.float64(); math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("FP64 %s: %v, want %v", token, got, want)
		}
	})
}
