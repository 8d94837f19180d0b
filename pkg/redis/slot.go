package redis

import "github.com/model-gateway/model-gateway/pkg/stage/limit"

// slots is how many a Redis Cluster has.
const slots = 16384

// tag is the part of a key that its slot depends on.
func tag(key string) string { return limit.Tag(key) }

// slot is where a cluster keeps key: CRC-16/XMODEM of its tag.
func slot(key string) int {
	var crc uint16
	for _, c := range []byte(tag(key)) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return int(crc % slots)
}

var crcTable = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ polynomial
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
