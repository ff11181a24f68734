// What makes a Go program a dynamically linked one: a call of C.
package main

// static int doubled_by_c(int value) { return 2 * value; }
import "C"

func init() {
	doubled = func(value int) int { return int(C.doubled_by_c(C.int(value))) }
}
