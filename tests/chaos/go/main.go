// kgo (franz-go) in a chaos run, with its history as minikafka.testing.history has it (tests/chaos).
//
//	chaos producer ROLE BOOTSTRAP TOPIC PARTITIONS HISTORY SEED
//	chaos member PROTOCOL BOOTSTRAP TOPICS GROUP HISTORY
//	chaos share BOOTSTRAP GROUP TOPIC COUNT
//	chaos share-member BOOTSTRAP GROUP TOPIC (share.go; these have no history)
//
// ROLE is idempotent or transactional. SIGTERM ends it in good order.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause              = 50 * time.Millisecond
	giveUp             = 30 * time.Second
	transactionTimeout = 20 * time.Second
)

// now is of CLOCK_MONOTONIC, as the other clients', in ms.
func now() float64 {
	var at syscall.Timespec
	const clockMonotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return float64(at.Sec)*1000 + float64(at.Nsec)/1e6
}

type operation struct {
	Process       string  `json:"process"`
	Kind          string  `json:"kind"`
	InvokedMs     float64 `json:"invoked_ms"`
	CompletedMs   float64 `json:"completed_ms"`
	Outcome       string  `json:"outcome"`
	Records       [][]any `json:"records,omitempty"`
	Partitions    [][]any `json:"partitions,omitempty"`
	Transaction   string  `json:"transaction,omitempty"`
	ReadCommitted bool    `json:"read_committed,omitempty"`
	Group         string  `json:"group,omitempty"`
	Error         string  `json:"error,omitempty"`
}

type history struct {
	sync.Mutex
	file *os.File
}

func opened(path string) *history {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	return &history{file: file}
}

func (h *history) write(each operation, err error) {
	if each.Outcome == "" {
		each.Outcome = "ok"
		if err != nil {
			each.Outcome = "info"
		}
	}
	if err != nil {
		each.Error = err.Error()
	}
	each.CompletedMs = now()
	line, failed := json.Marshal(each)
	check(failed)
	h.Lock()
	defer h.Unlock()
	_, failed = h.file.Write(append(line, '\n'))
	check(failed)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func name(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch arguments := os.Args[2:]; os.Args[1] {
	case "producer":
		produce(ctx, arguments)
	case "member":
		read(ctx, arguments)
	case "share":
		share(ctx, arguments)
	case "share-member":
		shareMember(ctx, arguments)
	}
}

type producing struct {
	history    *history
	name       string
	topic      string
	partitions int
	random     *rand.Rand
	number     int
	lives      atomic.Int32
}

func (p *producing) process() string {
	if lives := p.lives.Load(); lives > 0 {
		return fmt.Sprintf("%s.%d", p.name, lives)
	}
	return p.name
}

func (p *producing) send(client *kgo.Client, transaction string) {
	p.number++
	value := fmt.Sprintf("%s-%d", p.name, p.number)
	partition := int32(p.random.Intn(p.partitions))
	process, lives, invoked := p.process(), p.lives.Load(), now()
	record := &kgo.Record{Topic: p.topic, Partition: partition, Value: []byte(value)}
	client.Produce(context.Background(), record, func(told *kgo.Record, err error) {
		var offset any
		if err == nil {
			offset = told.Offset
		} else {
			p.lives.CompareAndSwap(lives, lives+1) // the order is not promised any further
		}
		p.history.write(operation{
			Process: process, Kind: "send", InvokedMs: invoked, Transaction: transaction,
			Records: [][]any{{p.topic, partition, offset, value}},
		}, err)
	})
}

func produce(ctx context.Context, arguments []string) {
	role, bootstrap := arguments[0], arguments[1]
	partitions, err := strconv.Atoi(arguments[3])
	check(err)
	seed := fnv.New64()
	seed.Write([]byte(arguments[5]))
	p := &producing{
		history: opened(arguments[4]), name: name(arguments[4]), topic: arguments[2], partitions: partitions,
		random: rand.New(rand.NewSource(int64(seed.Sum64()))),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(time.Second),
		kgo.MetadataMaxAge(2 * time.Second),
		kgo.ProduceRequestTimeout(3 * time.Second),
	}
	if role == "transactional" {
		options = append(options, kgo.TransactionalID(p.name), kgo.TransactionTimeout(transactionTimeout))
	}
	for transactions := 0; ctx.Err() == nil; {
		client, err := kgo.NewClient(options...)
		check(err)
		for failed := false; !failed && ctx.Err() == nil; {
			if role != "transactional" {
				p.send(client, "")
				time.Sleep(pause)
				continue
			}
			transactions++
			failed = !p.transact(client, fmt.Sprintf("%s-transaction-%d", p.name, transactions))
		}
		ended, cancel := context.WithTimeout(context.Background(), giveUp)
		if err := client.Flush(ended); err != nil {
			// What is left may be in a log: its callbacks write it down as unknown.
			fmt.Fprintln(os.Stderr, p.name, "gives up what is on its way:", err)
			aborting, stop := context.WithTimeout(context.Background(), giveUp)
			client.AbortBufferedRecords(aborting)
			stop()
		}
		cancel()
		client.Close()
	}
}

// transact returns whether the client can go on.
func (p *producing) transact(client *kgo.Client, transaction string) bool {
	process, invoked := p.process(), now()
	if err := client.BeginTransaction(); err != nil {
		fmt.Fprintln(os.Stderr, p.name, "begins again after", err)
		p.lives.Add(1)
		time.Sleep(time.Second / 2)
		return false
	}
	p.history.write(operation{Process: process, Kind: "begin", InvokedMs: invoked, Transaction: transaction}, nil)
	for left := 1 + p.random.Intn(6); left > 0; left-- {
		p.send(client, transaction)
		time.Sleep(pause)
	}
	ended, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	kind, end := "commit-transaction", kgo.TryCommit
	flushed := client.Flush(ended)
	if flushed != nil || p.random.Float64() < 0.2 {
		kind, end = "abort-transaction", kgo.TryAbort
		client.AbortBufferedRecords(ended)
	}
	invoked = now()
	err := client.EndTransaction(ended, end)
	p.history.write(operation{Process: process, Kind: kind, InvokedMs: invoked, Transaction: transaction}, err)
	if err != nil {
		fmt.Fprintln(os.Stderr, p.name, "begins again after", err)
		p.lives.Add(1)
	}
	return err == nil
}

type partition struct {
	topic  string
	number int32
}

func read(ctx context.Context, arguments []string) {
	bootstrap, topics, group := arguments[1], arguments[2], arguments[3]
	h, process := opened(arguments[4]), name(arguments[4])
	var lock sync.Mutex
	held := map[partition]bool{}
	change := func(changed map[string][]int32, holds bool) {
		lock.Lock()
		defer lock.Unlock()
		for topic, numbers := range changed {
			for _, number := range numbers {
				if holds {
					held[partition{topic, number}] = true
				} else {
					delete(held, partition{topic, number})
				}
			}
		}
		shown := [][]any{}
		for each := range held {
			shown = append(shown, []any{each.topic, each.number})
		}
		sort.Slice(shown, func(i, j int) bool { return fmt.Sprint(shown[i]) < fmt.Sprint(shown[j]) })
		h.write(operation{Process: process, Kind: "assign", InvokedMs: now(), Group: group, Partitions: shown}, nil)
	}
	gained := func(_ context.Context, _ *kgo.Client, more map[string][]int32) { change(more, true) }
	gone := func(_ context.Context, _ *kgo.Client, less map[string][]int32) { change(less, false) }
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(strings.Split(topics, ",")...),
		kgo.ConsumerGroup(group),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMinAge(time.Second),
		kgo.MetadataMaxAge(2*time.Second),
		kgo.OnPartitionsAssigned(gained),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
	)
	check(err)
	for ctx.Err() == nil {
		invoked := now()
		polling, cancel := context.WithTimeout(ctx, time.Second/5)
		fetches := client.PollFetches(polling)
		cancel()
		records := fetches.Records()
		if len(records) > 0 {
			poll(client, h, process, group, invoked, records)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

// poll writes down what came, commits it, and writes down what came of that.
func poll(client *kgo.Client, h *history, process, group string, invoked float64, records []*kgo.Record) {
	polled, positions := [][]any{}, map[partition]int64{}
	for _, each := range records {
		polled = append(polled, []any{each.Topic, each.Partition, each.Offset, string(each.Value)})
		positions[partition{each.Topic, each.Partition}] = each.Offset + 1
	}
	h.write(operation{
		Process: process, Kind: "poll", InvokedMs: invoked, Group: group, ReadCommitted: true, Records: polled,
	}, nil)
	committed := [][]any{}
	for at, offset := range positions {
		committed = append(committed, []any{at.topic, at.number, offset})
	}
	invoked = now()
	committing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := client.CommitRecords(committing, records...)
	h.write(operation{
		Process: process, Kind: "commit", InvokedMs: invoked, Group: group, Records: committed,
	}, err)
}
