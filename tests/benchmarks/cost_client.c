/* A client of bench_cost in C, so that what a broker costs is not hidden by what its client does: librdkafka and
 * nothing else.
 *
 *     cost_client produce BOOTSTRAP TOPIC PARTITIONS SIZE COUNT RATE PER_TRANSACTION [NAME=VALUE ...]
 *     cost_client consume BOOTSTRAP TOPIC PARTITIONS SIZE COUNT CONSUMERS 0 [NAME=VALUE ...]
 *
 * NAME=VALUE are librdkafka's properties. `produce` writes COUNT records of SIZE bytes over all partitions in turn,
 * RATE a second (0: as fast as they are taken), PER_TRANSACTION in each transaction (0: there are none). `consume`
 * reads COUNT records from the beginning by each of CONSUMERS consumers. Prints one line of JSON:
 * "seconds", from the first record to the last answer; "requests" sent in that time, of any kind; and of `produce`
 * "p50_ms" and "p99_ms", from when a record was due to its acknowledgement. Ends with 1 and a line on standard error
 * when anything fails, a lost record included. */

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAYLOADS = 64, BATCH = 1000, PATIENCE_MS = 60000, STATISTICS_MS = 100 };

struct client {
    rd_kafka_t *kafka;
    long requests;  /* as the latest statistics have it */
    long statistics; /* how many of them have come */
    long failed;
    long acknowledged;
    int64_t *latencies_us; /* of each acknowledged record */
};

struct asked {
    const char *bootstrap, *topic;
    int partitions;
    size_t size;
    long count, rate_or_consumers, per_transaction;
    char **settings;
    int settings_count;
};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "cost_client: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_until(int64_t due_us) {
    struct timespec due = {due_us / 1000000, due_us % 1000000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

/* The total of all requests is the last "tx" of the statistics; those before are each broker's. */
static int on_statistics(rd_kafka_t *kafka, char *json, size_t length, void *opaque) {
    struct client *client = opaque;
    const char *total = NULL;
    (void)kafka, (void)length;
    for (const char *at = json; (at = strstr(at, "\"tx\":")) != NULL; at++)
        total = at;
    if (total != NULL)
        client->requests = strtol(total + 5, NULL, 10);
    client->statistics++;
    return 0;
}

static void on_delivery(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    struct client *client = opaque;
    (void)kafka;
    if (message->err) {
        if (client->failed++ == 0)
            fprintf(stderr, "cost_client: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    client->latencies_us[client->acknowledged++] = now_us() - (int64_t)(intptr_t)message->_private;
}

static void open_client(struct client *client, rd_kafka_type_t type, const struct asked *asked) {
    char error[512], interval[16];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    snprintf(interval, sizeof interval, "%d", STATISTICS_MS);
    rd_kafka_conf_set_opaque(conf, client);
    rd_kafka_conf_set_stats_cb(conf, on_statistics);
    if (type == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if (rd_kafka_conf_set(conf, "bootstrap.servers", asked->bootstrap, error, sizeof error) ||
        rd_kafka_conf_set(conf, "statistics.interval.ms", interval, error, sizeof error))
        fail("a property", error);
    for (int i = 0; i < asked->settings_count; i++) {
        char *name = strdup(asked->settings[i]), *value = strchr(name, '=');
        if (value == NULL)
            fail("not NAME=VALUE", name);
        *value++ = '\0';
        if (rd_kafka_conf_set(conf, name, value, error, sizeof error))
            fail(name, error);
        free(name);
    }
    client->kafka = rd_kafka_new(type, conf, error, sizeof error);
    if (client->kafka == NULL)
        fail("no client", error);
}

/* The requests that have been sent until now: a whole interval of statistics from now on. */
static long requests_until_now(struct client *client) {
    long seen = client->statistics;
    while (client->statistics < seen + 2)
        rd_kafka_poll(client->kafka, STATISTICS_MS);
    return client->requests;
}

static void check(rd_kafka_error_t *error, const char *what) {
    if (error != NULL)
        fail(what, rd_kafka_error_string(error));
}

/* Half of a value is noise, half of it text, so that there is as much to compress as in most data. */
static char *make_payloads(size_t size) {
    static const char text[] = "{\"user\": \"alice\", \"page\": \"/products/kafka-in-action\", \"status\": 200}";
    char *payloads = malloc(PAYLOADS * size);
    uint64_t state = 88172645463325252ull;
    for (size_t i = 0; i < PAYLOADS * size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payloads[i] = i % size < size / 2 ? (char)state : text[i % (sizeof text - 1)];
    }
    return payloads;
}

static int by_value(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void produce_one(struct client *client, rd_kafka_topic_t *topic, int partition, char *value, size_t size,
                        int64_t due_us) {
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, (void *)(intptr_t)due_us)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(client->kafka, 10);
    }
}

static void produce(const struct asked *asked) {
    struct client client = {0};
    char *payloads = make_payloads(asked->size);
    client.latencies_us = malloc(sizeof(int64_t) * (size_t)(asked->count + asked->partitions));
    open_client(&client, RD_KAFKA_PRODUCER, asked);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client.kafka, asked->topic, NULL);
    if (asked->per_transaction) {
        check(rd_kafka_init_transactions(client.kafka, PATIENCE_MS), "init_transactions");
        check(rd_kafka_begin_transaction(client.kafka), "begin_transaction");
    }
    /* Connections to all leaders come first: one record a partition, that does not count. */
    for (int i = 0; i < asked->partitions; i++)
        produce_one(&client, topic, i, payloads, asked->size, now_us());
    rd_kafka_flush(client.kafka, PATIENCE_MS);
    if (asked->per_transaction)
        check(rd_kafka_commit_transaction(client.kafka, PATIENCE_MS), "commit_transaction");
    client.acknowledged = 0;
    long before = requests_until_now(&client);
    int64_t began = now_us();
    if (asked->per_transaction)
        check(rd_kafka_begin_transaction(client.kafka), "begin_transaction");
    for (long i = 0; i < asked->count; i++) {
        int64_t due = now_us();
        if (asked->rate_or_consumers) {
            due = began + i * 1000000 / asked->rate_or_consumers;
            while (now_us() < due) {
                rd_kafka_poll(client.kafka, 0);
                if (due - now_us() > 100)
                    sleep_until(due < now_us() + 1000 ? due : now_us() + 1000);
            }
        }
        produce_one(&client, topic, (int)(i % asked->partitions), payloads + (size_t)(i % PAYLOADS) * asked->size,
                    asked->size, due);
        if (asked->per_transaction && (i + 1) % asked->per_transaction == 0) {
            check(rd_kafka_commit_transaction(client.kafka, PATIENCE_MS), "commit_transaction");
            check(rd_kafka_begin_transaction(client.kafka), "begin_transaction");
        }
        if (i % 16 == 0)
            rd_kafka_poll(client.kafka, 0);
    }
    if (asked->per_transaction)
        check(rd_kafka_commit_transaction(client.kafka, PATIENCE_MS), "commit_transaction");
    if (rd_kafka_flush(client.kafka, PATIENCE_MS))
        fail("flush", "records are left");
    int64_t seconds_us = now_us() - began;
    if (client.failed || client.acknowledged != asked->count)
        fail("records", "not all were acknowledged");
    long requests = requests_until_now(&client) - before;
    qsort(client.latencies_us, (size_t)asked->count, sizeof(int64_t), by_value);
    printf("{\"seconds\": %f, \"requests\": %ld, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n", (double)seconds_us / 1e6,
           requests, (double)client.latencies_us[asked->count / 2] / 1e3,
           (double)client.latencies_us[asked->count * 99 / 100] / 1e3);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client.kafka);
}

struct consumer {
    const struct asked *asked;
    int64_t began_us, ended_us;
    long requests;
};

static void *consume_all(void *argument) {
    struct consumer *consumer = argument;
    const struct asked *asked = consumer->asked;
    struct client client = {0};
    rd_kafka_message_t *messages[BATCH];
    long seen = 0;
    open_client(&client, RD_KAFKA_CONSUMER, asked);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client.kafka, asked->topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client.kafka);
    consumer->began_us = now_us();
    for (int i = 0; i < asked->partitions; i++)
        if (rd_kafka_consume_start_queue(topic, i, RD_KAFKA_OFFSET_BEGINNING, queue))
            fail("consume_start", rd_kafka_err2str(rd_kafka_last_error()));
    while (seen < asked->count) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, PATIENCE_MS, messages, BATCH);
        if (count <= 0)
            fail("consume", "no record came for a minute");
        for (ssize_t i = 0; i < count; i++) {
            if (messages[i]->err && messages[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                fail("consume", rd_kafka_message_errstr(messages[i]));
            seen += messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR;
            rd_kafka_message_destroy(messages[i]);
        }
        rd_kafka_poll(client.kafka, 0);
    }
    consumer->ended_us = now_us();
    consumer->requests = requests_until_now(&client);
    for (int i = 0; i < asked->partitions; i++)
        rd_kafka_consume_stop(topic, i);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client.kafka);
    return NULL;
}

static void consume(const struct asked *asked) {
    long count = asked->rate_or_consumers, requests = 0;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    struct consumer *consumers = calloc((size_t)count, sizeof *consumers);
    for (long i = 0; i < count; i++) {
        consumers[i].asked = asked;
        if (pthread_create(&threads[i], NULL, consume_all, &consumers[i]))
            fail("consume", "no thread");
    }
    int64_t began = INT64_MAX, ended = 0;
    for (long i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        began = consumers[i].began_us < began ? consumers[i].began_us : began;
        ended = consumers[i].ended_us > ended ? consumers[i].ended_us : ended;
        requests += consumers[i].requests;
    }
    printf("{\"seconds\": %f, \"requests\": %ld}\n", (double)(ended - began) / 1e6, requests);
}

int main(int count, char **words) {
    if (count < 9)
        fail("usage", "produce|consume BOOTSTRAP TOPIC PARTITIONS SIZE COUNT RATE|CONSUMERS PER_TRANSACTION [NAME=VALUE]");
    struct asked asked = {
        .bootstrap = words[2],
        .topic = words[3],
        .partitions = atoi(words[4]),
        .size = (size_t)atol(words[5]),
        .count = atol(words[6]),
        .rate_or_consumers = atol(words[7]),
        .per_transaction = atol(words[8]),
        .settings = words + 9,
        .settings_count = count - 9,
    };
    if (strcmp(words[1], "produce") == 0)
        produce(&asked);
    else
        consume(&asked);
    return 0;
}
