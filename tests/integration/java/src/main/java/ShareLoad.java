import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * The members of a share group, as threads, that accept all they get and commit after each poll, until so many records are
 * accepted. Arguments: bootstrap servers, topic, group, members, records, records a second (0: they are there already).
 * Prints a line: records, seconds from the first record to the last acknowledgement, and the 50th and 99th percentile, in
 * milliseconds, from when a record was produced until it was acknowledged.
 */
public class ShareLoad {
    private static final int RECORD_BYTES = 1024;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        int members = Integer.parseInt(arguments[3]), wanted = Integer.parseInt(arguments[4]);
        int rate = Integer.parseInt(arguments[5]);
        AtomicInteger accepted = new AtomicInteger();
        AtomicLong first = new AtomicLong(Long.MAX_VALUE), last = new AtomicLong();
        ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(members);
        List<Thread> threads = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            Thread thread = new Thread(() -> {
                Properties properties = new Properties();
                properties.put("bootstrap.servers", bootstrap);
                properties.put("group.id", group);
                try (KafkaShareConsumer<byte[], byte[]> consumer =
                        new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consumer.subscribe(List.of(topic));
                    boolean isReady = false;
                    while (accepted.get() < wanted && failure.get() == null) {
                        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                        if (!isReady) {
                            isReady = true;
                            ready.countDown();
                        }
                        if (records.isEmpty()) continue;
                        first.accumulateAndGet(System.nanoTime(), Math::min);
                        consumer.commitSync();
                        long now = System.nanoTime();
                        for (ConsumerRecord<byte[], byte[]> record : records) {
                            latencies.add(now - java.nio.ByteBuffer.wrap(record.value()).getLong());
                        }
                        last.accumulateAndGet(now, Math::max);
                        accepted.addAndGet(records.count());
                    }
                } catch (Throwable error) {
                    failure.set(error);
                    ready.countDown();
                }
            });
            threads.add(thread);
            thread.start();
        }
        if (rate > 0) {
            ready.await();
            Thread.sleep(6000); // every member has a heartbeat with its assignment by then
            produce(bootstrap, topic, wanted, rate);
        }
        for (Thread thread : threads) thread.join();
        if (failure.get() != null) throw new IllegalStateException(failure.get());
        long[] sorted = latencies.stream().mapToLong(Long::longValue).sorted().toArray();
        System.out.printf(Locale.ROOT, "%d %.3f %.2f %.2f%n", accepted.get(), (last.get() - first.get()) / 1e9,
            sorted[sorted.length / 2] / 1e6, sorted[(int) (sorted.length * 0.99)] / 1e6);
    }

    private static void produce(String bootstrap, String topic, int count, int rate) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("linger.ms", "2");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long began = System.nanoTime();
            for (int number = 0; number < count; number++) {
                long due = began + number * 1_000_000_000L / rate;
                long left = due - System.nanoTime();
                if (left > 0) java.util.concurrent.locks.LockSupport.parkNanos(left);
                byte[] value = java.nio.ByteBuffer.allocate(RECORD_BYTES).putLong(System.nanoTime()).array();
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
        }
    }
}
