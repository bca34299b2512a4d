// SPDX-License-Identifier: Apache-2.0
// Two functions that burn CPU for the seconds in the first argument; see live_names.sh.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

type counter struct{ n int }

//go:noinline
func (c *counter) hotLeaf(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s += (i * 7) % 13
	}
	c.n++
	return s
}

//go:noinline
func outerLoop(end time.Time) int {
	c, t := &counter{}, 0
	for time.Now().Before(end) {
		t += c.hotLeaf(100000)
	}
	return t
}

func main() {
	s, _ := strconv.ParseFloat(os.Args[1], 64)
	fmt.Println(outerLoop(time.Now().Add(time.Duration(s * 1e9))))
}
