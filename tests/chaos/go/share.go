package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// share takes COUNT records as a member of a share group and prints what it gets, as ShareConsume.java does:
// "partition offset deliveryCount value". What begins with "release" is given back when it comes for the first time,
// what begins with "reject" is rejected. It ends when all acknowledgements are answered.
//
//	chaos share BOOTSTRAP GROUP TOPIC COUNT
func share(ctx context.Context, arguments []string) {
	bootstrap, group, topic := arguments[0], arguments[1], arguments[2]
	wanted, err := strconv.Atoi(arguments[3])
	check(err)
	var lock sync.Mutex
	refused := []string{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareAckCallback(func(_ *kgo.Client, told kgo.ShareAckResults) {
			if err := told.Error(); err != nil {
				lock.Lock()
				defer lock.Unlock()
				refused = append(refused, err.Error())
			}
		}),
	)
	check(err)
	for got := 0; got < wanted; {
		fetches := client.PollFetches(ctx)
		check(ctx.Err())
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			value := string(record.Value)
			fmt.Println(record.Partition, record.Offset, record.DeliveryCount(), value)
			switch {
			case strings.HasPrefix(value, "release") && record.DeliveryCount() == 1:
				record.Ack(kgo.AckRelease)
			case strings.HasPrefix(value, "reject"):
				record.Ack(kgo.AckReject)
				got++
			default:
				record.Ack(kgo.AckAccept)
				got++
			}
		})
		check(client.FlushAcks(ctx))
	}
	client.Close()
	lock.Lock()
	defer lock.Unlock()
	for _, each := range refused {
		fmt.Println("failed", each)
	}
}

// shareMember accepts what it gets until SIGTERM, whatever becomes of brokers meanwhile. It prints each record, and
// after the answers to its acknowledgements those that count, with the time: "got MS VALUE" and "accepted MS VALUE".
//
//	chaos share-member BOOTSTRAP GROUP TOPIC
func shareMember(ctx context.Context, arguments []string) {
	bootstrap, group, topic := arguments[0], arguments[1], arguments[2]
	var lock sync.Mutex
	var refused error
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.MetadataMinAge(time.Second),
		kgo.MetadataMaxAge(2*time.Second),
		kgo.ShareAckCallback(func(_ *kgo.Client, told kgo.ShareAckResults) {
			if err := told.Error(); err != nil {
				lock.Lock()
				defer lock.Unlock()
				refused = err
			}
		}),
	)
	check(err)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "a fetch failed:", err)
		}
		got := fetches.Records()
		lock.Lock()
		refused = nil
		lock.Unlock()
		for _, record := range got {
			fmt.Printf("got %f %s\n", now(), record.Value)
			record.Ack(kgo.AckAccept)
		}
		// Asked to end, it waits for the answers all the same.
		if err := client.FlushAcks(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "acknowledgements failed:", err)
			continue
		}
		lock.Lock()
		err := refused
		lock.Unlock()
		if err != nil {
			fmt.Fprintln(os.Stderr, "acknowledgements were refused:", err)
			continue
		}
		for _, record := range got {
			fmt.Printf("accepted %f %s\n", now(), record.Value)
		}
	}
	client.Close()
}
