import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Records to all partitions of a topic in turn, at a steady rate, until standard input ends; then a line for each on
 * standard output: when it was sent (nanoTime, on Linux the monotonic clock of every process), how long its
 * acknowledgement took, in nanoseconds, and the error if it failed. Arguments: BOOTSTRAP TOPIC PARTITIONS RATE SIZE.
 */
public final class SteadyLoad {
    private record Sent(long atNs, long tookNs, String error) {}

    private static final int PORTIONS_PER_SECOND = 100;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int portion = Integer.parseInt(arguments[3]) / PORTIONS_PER_SECOND;
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("linger.ms", 0);
        ConcurrentLinkedQueue<Sent> all = new ConcurrentLinkedQueue<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.partitionsFor(topic);
            System.out.println("ready");
            long due = System.nanoTime();
            int partition = 0;
            while (System.in.available() == 0) {
                for (int each = 0; each < portion; each++) {
                    long at = System.nanoTime();
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) ->
                        all.add(new Sent(at, System.nanoTime() - at, error == null ? "" : error.toString())));
                    partition = (partition + 1) % partitions;
                }
                due += 1_000_000_000L / PORTIONS_PER_SECOND;
                LockSupport.parkNanos(Math.max(1, due - System.nanoTime()));
            }
        }
        StringBuilder lines = new StringBuilder();
        for (Sent each : all) {
            lines.append(each.atNs).append(' ').append(each.tookNs).append(' ').append(each.error).append('\n');
        }
        System.out.print(lines);
    }
}
