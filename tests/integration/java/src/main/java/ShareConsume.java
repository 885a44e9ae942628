import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints what a share consumer gets: "partition offset deliveryCount value" for each record, "acknowledged n" after each commit. */
public class ShareConsume {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], group = arguments[1], topic = arguments[2];
        int wanted = Integer.parseInt(arguments[3]);
        long deadline = System.currentTimeMillis() + Long.parseLong(arguments[4]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", "explicit");
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        int got = 0;
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (got < wanted && System.currentTimeMillis() < deadline) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                int accepted = 0;
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println(record.partition() + " " + record.offset() + " "
                        + deliveryCount(record) + " " + record.value());
                    if (record.value().startsWith("release") && deliveryCount(record) == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else if (record.value().startsWith("reject")) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        got++;
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        got++;
                        accepted++;
                    }
                }
                Map<org.apache.kafka.common.TopicIdPartition, Optional<org.apache.kafka.common.KafkaException>> done = consumer.commitSync();
                done.forEach((at, error) -> error.ifPresent(e -> System.out.println("failed " + e)));
                if (accepted > 0) System.out.println("acknowledged " + accepted);
            }
        }
    }

    /** By name, because clients of 3.9, which this is compiled with as well, do not have it. */
    private static int deliveryCount(ConsumerRecord<String, String> record) throws ReflectiveOperationException {
        Object count = ConsumerRecord.class.getMethod("deliveryCount").invoke(record);
        return ((Optional<Short>) count).orElse((short) -1);
    }
}
