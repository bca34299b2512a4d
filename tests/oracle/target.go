// SPDX-License-Identifier: Apache-2.0

// Target of the unwinding oracle: Go's own frames, growing stacks and interface calls, on the main
// thread.
package main

import (
	"os"
	"runtime"
	"sort"
	"strconv"
)

type shape interface{ area(int) int }
type square struct{ side int }

//go:noinline
func (s square) area(n int) int {
	var b [64]int
	b[n&63] = s.side
	if n == 0 {
		return b[0] * s.side
	}
	return s.area(n-1) + b[n&63]
}

//go:noinline
func work(s shape) (sum int) {
	defer func() { sum += len(strconv.Itoa(sum)) }()
	v := []int{5, 3, 9, 1}
	sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	m := map[string]int{}
	for _, n := range v {
		m[strconv.Itoa(n)] = s.area(n)
	}
	return len(m) + s.area(40)
}

func init() { runtime.LockOSThread() }

func main() {
	runtime.Breakpoint()
	n := work(square{3})
	runtime.Breakpoint()
	if n == 0 {
		os.Exit(1)
	}
}
