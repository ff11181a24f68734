// Goroutines and channels: workers on buffered and unbuffered channels, select with a timer, garbage for the collector.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

const workers = 8

type answer struct {
	number int
	sum    string
}

// Each worker keeps a map that depends on all its tasks.
func worker(number int, tasks <-chan string, answers chan<- answer, group *sync.WaitGroup) {
	defer group.Done()
	kept := map[int]string{}
	for task := range tasks {
		for round := 0; round < 200; round++ {
			sum := sha256.Sum256([]byte(task + kept[round%20] + strconv.Itoa(number)))
			kept[round%20] = hex.EncodeToString(sum[:])
		}
		answers <- answer{number, kept[7]}
	}
}

func fromEnvironment(name string) int {
	number, _ := strconv.Atoi(os.Getenv(name))
	return number
}

// doubled is a function in C where cgo.go is compiled too.
var doubled = func(value int) int { return 2 * value }

func main() {
	steps := 80
	if len(os.Args) > 1 {
		steps, _ = strconv.Atoi(os.Args[1])
	}
	// As in victim.h: where a test wants the program to wait, and for which file.
	waitsAt, waitsFor := fromEnvironment("CKPT_VICTIM_WAITS_AT"), os.Getenv("CKPT_VICTIM_WAITS_FOR")

	var group sync.WaitGroup
	answers := make(chan answer)
	var tasks []chan string
	for number := 0; number < workers; number++ {
		task := make(chan string, number%3)
		group.Add(1)
		go worker(number, task, answers, &group)
		tasks = append(tasks, task)
	}
	fmt.Println("ready")
	sum := "start"
	for step := 1; step <= steps; step++ {
		for _, task := range tasks {
			task <- sum + strconv.Itoa(doubled(step))
		}
		found := make([]answer, 0, workers)
		for len(found) < workers {
			select {
			case one := <-answers:
				found = append(found, one)
			case <-time.After(time.Minute):
				fmt.Println("FAILED: no answer within a minute")
				os.Exit(1)
			}
		}
		sort.Slice(found, func(i, j int) bool { return found[i].number < found[j].number })
		whole := sha256.Sum256([]byte(fmt.Sprint(sum, found)))
		sum = hex.EncodeToString(whole[:])
		fmt.Println("step", step, sum)
		for step == waitsAt {
			if _, err := os.Stat(waitsFor); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, task := range tasks {
		close(task)
	}
	group.Wait()
	fmt.Println("verified")
	os.Exit(12)
}
