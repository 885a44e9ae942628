import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's clients in a chaos run, with their history as `minikafka.testing.history` has it (tests/chaos).
 *
 *     ChaosClient producer ROLE BOOTSTRAP TOPIC PARTITIONS HISTORY SEED
 *     ChaosClient member PROTOCOL BOOTSTRAP TOPICS GROUP HISTORY
 *
 * ROLE is plain (what fails is not tried again), idempotent or transactional, PROTOCOL classic or consumer. SIGTERM ends it in good order.
 * The system properties chaos.delivery.timeout.ms and chaos.request.timeout.ms are for a test that cannot wait so long.
 */
public final class ChaosClient {
    static final int PAUSE_MS = 50;
    static final int GIVE_UP_MS = 30_000;
    /** Longer than any fault: what is not acknowledged by then never will be (tests/chaos/give_ups.py), and is unknown. */
    static final int DELIVERY_TIMEOUT_MS = Integer.getInteger("chaos.delivery.timeout.ms", 120_000);
    static final int REQUEST_TIMEOUT_MS = Integer.getInteger("chaos.request.timeout.ms", 3_000);
    /** So often a client library may fail in a way that is not one of its own errors. */
    static final int SURPRISES_MAX = 50;
    static final int TRANSACTION_TIMEOUT_MS = 20_000;
    static final AtomicBoolean stopping = new AtomicBoolean();

    static double now() {
        return System.nanoTime() / 1e6; // CLOCK_MONOTONIC, as the other clients'
    }

    /** One operation a line. */
    static final class History {
        private final OutputStream out;

        History(String path) throws IOException {
            out = new FileOutputStream(path, true);
        }

        synchronized void write(String process, String kind, double invoked, String outcome, String more) {
            String line = String.format(
                "{\"process\":\"%s\",\"kind\":\"%s\",\"invoked_ms\":%.3f,\"completed_ms\":%.3f,\"outcome\":\"%s\"%s}%n",
                process, kind, invoked, now(), outcome, more);
            try {
                out.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        static String error(Exception error) {
            if (error == null) return "";
            String text = error.toString().replace("\\", "/").replace("\"", "'").replaceAll("\\s+", " ");
            return ",\"error\":\"" + text + "\"";
        }

        static String record(String topic, int partition, Long offset, String value) {
            return "[\"" + topic + "\"," + partition + "," + offset + (value == null ? "" : ",\"" + value + "\"") + "]";
        }
    }

    /** A client's own error, or one that is none of them: a line for the log, and another client goes on. Not for ever. */
    static void beginAgain(String name, RuntimeException error, int[] surprises) {
        if (error instanceof KafkaException) {
            System.err.println(name + " begins again after " + error);
            return;
        }
        System.err.println("unexpected: " + error);
        error.printStackTrace();
        if (++surprises[0] > SURPRISES_MAX) throw error;
    }

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                main.join();
            } catch (InterruptedException error) {
                main.interrupt();
            }
        }));
        if (arguments[0].equals("producer")) produce(arguments);
        else read(arguments);
    }

    static String name(String path) {
        String file = path.substring(path.lastIndexOf('/') + 1);
        return file.substring(0, file.lastIndexOf('.'));
    }

    static void produce(String[] arguments) throws Exception {
        String role = arguments[1], topic = arguments[3], name = name(arguments[5]);
        int partitions = Integer.parseInt(arguments[4]);
        Random random = new Random(arguments[6].hashCode());
        History history = new History(arguments[5]);
        boolean transactional = role.equals("transactional");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[2]);
        settings.put("acks", "all");
        settings.put("request.timeout.ms", "" + REQUEST_TIMEOUT_MS);
        settings.put("delivery.timeout.ms", "" + (transactional ? TRANSACTION_TIMEOUT_MS : DELIVERY_TIMEOUT_MS));
        settings.put("max.block.ms", "" + GIVE_UP_MS);
        settings.put("metadata.max.age.ms", "2000");
        settings.put("reconnect.backoff.max.ms", "500");
        if (transactional) {
            settings.put("transactional.id", name);
            settings.put("transaction.timeout.ms", "" + TRANSACTION_TIMEOUT_MS);
        }
        if (role.equals("plain")) {
            settings.put("enable.idempotence", "false");
            settings.put("retries", "0");
            settings.put("max.in.flight.requests.per.connection", "1");
        }
        AtomicInteger life = new AtomicInteger();
        int[] number = {0}, transactions = {0}, surprises = {0};
        while (!stopping.get()) {
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                if (transactional) producer.initTransactions();
                while (!stopping.get()) {
                    if (!transactional) {
                        send(producer, history, null, name, topic, partitions, random, number, life, "");
                        Thread.sleep(PAUSE_MS);
                        continue;
                    }
                    String process = process(name, life), transaction = name + "-transaction-" + ++transactions[0];
                    String more = ",\"transaction\":\"" + transaction + "\"";
                    double invoked = now();
                    producer.beginTransaction();
                    history.write(process, "begin", invoked, "ok", more);
                    for (int left = 1 + random.nextInt(6); left > 0; left--) {
                        send(producer, history, process, name, topic, partitions, random, number, life, transaction);
                        Thread.sleep(PAUSE_MS);
                    }
                    String kind = random.nextDouble() < 0.2 ? "abort-transaction" : "commit-transaction";
                    invoked = now();
                    try {
                        if (kind.equals("commit-transaction")) producer.commitTransaction();
                        else producer.abortTransaction();
                    } catch (KafkaException error) {
                        history.write(process, kind, invoked, "info", more + History.error(error));
                        throw error;
                    }
                    history.write(process, kind, invoked, "ok", more);
                }
            } catch (KafkaException | IllegalStateException error) { // the latter: a transaction's states, for one
                beginAgain(name, error, surprises);
                life.incrementAndGet();
                Thread.sleep(500);
            }
        }
    }

    static String process(String name, AtomicInteger life) {
        return life.get() == 0 ? name : name + "." + life.get();
    }

    /**
     * Send the next record. Without a process it is the one of the time when the outcome is known: what is in flight
     * when a record is given up is sent again in another epoch, behind what had been acknowledged by then.
     */
    static void send(
            KafkaProducer<String, String> producer, History history, String process, String name, String topic,
            int partitions, Random random, int[] number, AtomicInteger life, String transaction) {
        String value = name + "-" + ++number[0];
        int partition = random.nextInt(partitions);
        int lifeThen = life.get();
        double invoked = now();
        String more = transaction.isEmpty() ? "" : ",\"transaction\":\"" + transaction + "\"";
        producer.send(new ProducerRecord<>(topic, partition, null, value), (told, error) -> {
            Long offset = error == null && told.hasOffset() ? told.offset() : null;
            String records = ",\"records\":[" + History.record(topic, partition, offset, value) + "]";
            String by = process == null ? process(name, life) : process;
            history.write(by, "send", invoked, error == null ? "ok" : "info", records + more + History.error(error));
            if (error == null) return;
            if (process == null) life.incrementAndGet(); // the order is not promised any further
            else life.compareAndSet(lifeThen, lifeThen + 1);
        });
    }

    static void read(String[] arguments) throws Exception {
        String group = arguments[4], name = name(arguments[5]);
        History history = new History(arguments[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[2]);
        settings.put("group.id", group);
        settings.put("group.protocol", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("metadata.max.age.ms", "2000");
        settings.put("default.api.timeout.ms", "10000");
        if (arguments[1].equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "1000");
        }
        Set<TopicPartition> held = new HashSet<>();
        String ofGroup = ",\"group\":\"" + group + "\"";
        Runnable assigned = () -> {
            List<String> shown = new ArrayList<>();
            for (TopicPartition each : held) shown.add("[\"" + each.topic() + "\"," + each.partition() + "]");
            history.write(name, "assign", now(), "ok", ofGroup + ",\"partitions\":[" + String.join(",", shown) + "]");
        };
        int[] surprises = {0};
        while (!stopping.get()) {
            try {
                member(settings, arguments[3].split(","), history, name, ofGroup, held, assigned);
            } catch (KafkaException | IllegalStateException error) { // fenced, for one
                beginAgain(name, error, surprises);
                held.clear();
                assigned.run(); // another member begins, at what is committed
                Thread.sleep(500);
            }
        }
    }

    /** One member of the group, until it fails or all end. */
    static void member(
            Properties settings, String[] topics, History history, String name, String ofGroup,
            Set<TopicPartition> held, Runnable assigned) {
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Arrays.asList(topics), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    held.removeAll(partitions);
                    assigned.run();
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    held.addAll(partitions);
                    assigned.run();
                }
            });
            while (!stopping.get()) {
                double invoked = now();
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (polled.isEmpty()) continue;
                List<String> records = new ArrayList<>();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (ConsumerRecord<String, String> each : polled) {
                    records.add(History.record(each.topic(), each.partition(), each.offset(), each.value()));
                    positions.put(
                        new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                }
                history.write(
                    name, "poll", invoked, "ok",
                    ofGroup + ",\"read_committed\":true,\"records\":[" + String.join(",", records) + "]");
                List<String> committed = new ArrayList<>();
                positions.forEach((at, offset) ->
                    committed.add(History.record(at.topic(), at.partition(), offset.offset(), null)));
                String more = ofGroup + ",\"records\":[" + String.join(",", committed) + "]";
                invoked = now();
                try {
                    consumer.commitSync(positions);
                } catch (KafkaException error) { // a rebalance, a coordinator that moves
                    history.write(name, "commit", invoked, "info", more + History.error(error));
                    continue;
                }
                history.write(name, "commit", invoked, "ok", more);
            }
        }
    }
}
