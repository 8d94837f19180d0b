package redis

import "github.com/model-gateway/model-gateway/pkg/stage/limit"

// slots is how many a Redis Cluster has.
const slots = 16384

// slot is where a cluster keeps the key that name stands for: CRC-16/XMODEM of its tag, else of all of it, and that
// begins with the prefix, which has no braces.
func (c *Client) slot(name string) int {
	if tag := limit.Tag(name); len(tag) != len(name) {
		return int(crc16(0, tag) % slots)
	}
	return int(crc16(c.crc, name) % slots)
}

// crc16 goes on with crc, which is 0 at the beginning.
func crc16(crc uint16, s string) uint16 {
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
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
