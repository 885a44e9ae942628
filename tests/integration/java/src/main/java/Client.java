import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's Java client behind standard input and output, one tab-separated line a record; bytes in base64, null as "-". */
public final class Client {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1]);
            case "consume" -> consume(args[1]);
            case "admin" -> admin(args[1], args[2]);
            case "move" -> move(args[1]);
            case "transact" -> transact(args[1], args[2]);
            case "transactions" ->
                transactions(
                    args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), args.length > 5 ? args[5] : null);
            default -> throw new IllegalArgumentException(args[0]);
        }
        OUT.flush();
    }

    /** A transaction a line: topic, value, and "commit" or "abort". */
    private static void transact(String bootstrap, String transactionalId) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", transactionalId);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (String[] line : readLines()) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(line[0], 0, null, line[1].getBytes(StandardCharsets.UTF_8)));
                if (line[2].equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    /**
     * Transactions in a row, each with a record for every partition of a topic, the next one begun as soon as the
     * last commit returns, and with an offset of a group unless that is null. A line for each that failed: its
     * number and why.
     */
    private static void transactions(String bootstrap, String topic, int partitions, int count, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", topic);
        properties.put("linger.ms", "0");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int number = 0; number < count; number++) {
                byte[] value = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
                producer.beginTransaction();
                try {
                    for (int partition = 0; partition < partitions; partition++) {
                        producer.send(new ProducerRecord<>(topic, partition, null, value));
                    }
                    if (group != null) {
                        producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number)),
                            new ConsumerGroupMetadata(group));
                    }
                    // Else its own thread may find nothing incomplete just before the records came, and ask to commit
                    // what no broker has heard of.
                    producer.flush();
                    producer.commitTransaction();
                } catch (KafkaException failure) {
                    Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                    OUT.println(number + "\t" + cause.getClass().getSimpleName() + ": " + cause.getMessage());
                    producer.abortTransaction();
                }
            }
        }
    }

    private static List<String[]> readLines() throws Exception {
        List<String[]> lines = new ArrayList<>();
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                lines.add(line.split("\t", -1));
            }
        }
        return lines;
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("default.api.timeout.ms", "15000");
        properties.put("request.timeout.ms", "10000");
        return properties;
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }

    /** Lines in: codec, topic, partition, timestamp, key, value, headers (name:value, both base64, commas between). */
    private static void produce(String bootstrap) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new TreeMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String[] line : readLines()) {
            KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(line[0], codec -> {
                Properties properties = properties(bootstrap);
                properties.put("compression.type", codec);
                properties.put("linger.ms", "20");
                properties.put("max.block.ms", "10000");
                properties.put("delivery.timeout.ms", "30000");
                return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
            });
            Long timestamp = line[3].equals("-") ? null : Long.valueOf(line[3]);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                line[1], Integer.valueOf(line[2]), timestamp, bytes(line[4]), bytes(line[5]));
            if (!line[6].isEmpty()) {
                for (String header : line[6].split(",", -1)) {
                    String[] pair = header.split(":", -1);
                    record.headers().add(new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1]));
                }
            }
            sent.add(producer.send(record));
        }
        for (KafkaProducer<byte[], byte[]> producer : producers.values()) {
            producer.close();
        }
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get();
            OUT.println(metadata.topic() + "\t" + metadata.partition() + "\t" + metadata.offset());
        }
    }

    /** Lines in: topic, partition, first offset, count. Lines out: topic, partition, offset, timestamp, key, value, headers. */
    private static void consume(String bootstrap) throws Exception {
        Properties properties = properties(bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        Map<TopicPartition, Long> missing = new HashMap<>();
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, plain, plain)) {
            List<String[]> wanted = readLines();
            for (String[] line : wanted) {
                missing.put(new TopicPartition(line[0], Integer.parseInt(line[1])), Long.valueOf(line[3]));
            }
            consumer.assign(missing.keySet());
            for (String[] line : wanted) {
                consumer.seek(new TopicPartition(line[0], Integer.parseInt(line[1])), Long.parseLong(line[2]));
            }
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (missing.values().stream().anyMatch(count -> count > 0)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("still missing after 30 s: " + missing);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    missing.merge(new TopicPartition(record.topic(), record.partition()), -1L, Long::sum);
                    OUT.println(String.join("\t", record.topic(), Integer.toString(record.partition()),
                        Long.toString(record.offset()), Long.toString(record.timestamp()), text(record.key()),
                        text(record.value()), text(record.headers())));
                }
            }
        }
    }

    private static String text(Headers headers) {
        List<String> parts = new ArrayList<>();
        for (Header header : headers) {
            parts.add(text(header.key().getBytes(StandardCharsets.UTF_8)) + ":" + text(header.value()));
        }
        return String.join(",", parts);
    }

    private static void expect(Object wanted, Object got, String what) {
        if (!wanted.equals(got)) {
            throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
        }
    }

    private static String errorOf(Future<?> future) throws Exception {
        try {
            future.get();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    /** One story through Kafka's own Admin; every step is checked here, the last line says that all went well. */
    private static void admin(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(properties(bootstrap))) {
            Node controller = admin.describeCluster().controller().get();
            expect(1, admin.describeCluster().nodes().get().size(), "nodes");
            expect(true, bootstrap.endsWith(":" + controller.port()), "controller");

            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"));
            admin.createTopics(Set.of(wanted)).all().get();
            expect("TopicExistsException", errorOf(admin.createTopics(Set.of(wanted)).all()), "created twice");
            expect("InvalidReplicationFactorException",
                errorOf(admin.createTopics(Set.of(new NewTopic(topic + "-x", 1, (short) 7))).all()), "replicas");
            expect(true, admin.listTopics().names().get().contains(topic), "listed");

            TopicDescription description = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
            expect(2, description.partitions().size(), "partitions");
            expect(controller.id(), description.partitions().get(0).leader().id(), "leader");
            expect(topic, admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(
                Set.of(description.topicId()))).allTopicIds().get().get(description.topicId()).name(), "by id");

            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            expect(3, admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size(), "more");
            expect("InvalidPartitionsException",
                errorOf(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all()), "fewer");

            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry entry = config(admin, resource, "retention.ms");
            expect("86400000", entry.value(), "created with");
            expect(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry.source(), "source");
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE)))).all().get();
            expect("2000", config(admin, resource, "max.message.bytes").value(), "altered");
            expect(false, config(admin, resource, "retention.ms").source()
                == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "deleted");
            expect("InvalidConfigurationException", errorOf(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("segment.bytes", "-1"), AlterConfigOp.OpType.SET)))).all()), "bad");
            // The records are of 1970: retention must not take them in the middle.
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "-1"), AlterConfigOp.OpType.SET)))).all().get();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, controller.idString());
            expect(true, admin.describeConfigs(Set.of(broker)).all().get().get(broker).entries().size() > 20, "broker");

            TopicPartition partition = new TopicPartition(topic, 0);
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties(bootstrap), new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, 1000L + i % 8, null, new byte[10]));
                }
            }
            expect(10L, offset(admin, partition, OffsetSpec.latest()), "latest");
            expect(7L, offset(admin, partition, OffsetSpec.maxTimestamp()), "max timestamp");
            expect(3L, offset(admin, partition, OffsetSpec.forTimestamp(1003)), "by time");
            expect(-1L, offset(admin, partition, OffsetSpec.forTimestamp(5000)), "after all");
            expect(4L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
                .lowWatermarks().get(partition).get().lowWatermark(), "low watermark");
            expect(4L, offset(admin, partition, OffsetSpec.earliest()), "earliest");
            expect("OffsetOutOfRangeException",
                errorOf(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(99))).all()), "beyond");
            expect(1, admin.describeProducers(Set.of(partition)).all().get().get(partition).activeProducers().size(),
                "producers");

            Set<String> directories = new TreeSet<>();
            for (LogDirDescription directory :
                    admin.describeLogDirs(Set.of(controller.id())).allDescriptions().get().get(controller.id()).values()) {
                directory.replicaInfos().forEach((replica, info) -> {
                    if (replica.topic().equals(topic)) {
                        directories.add(replica.partition() + ":" + (info.size() > 0));
                    }
                });
            }
            expect(Set.of("0:true", "1:false", "2:false"), directories, "log directories");

            admin.deleteTopics(Set.of(topic)).all().get();
            expect("UnknownTopicOrPartitionException", errorOf(admin.deleteTopics(Set.of(topic)).all()), "deleted twice");
            expect(false, admin.listTopics().names().get().contains(topic), "gone");
            OUT.println("ok");
        }
    }

    /** Lines in: topic, partition, broker, log directory; returns when all replicas are there. */
    private static void move(String bootstrap) throws Exception {
        Map<TopicPartitionReplica, String> wanted = new HashMap<>();
        for (String[] line : readLines()) {
            wanted.put(new TopicPartitionReplica(line[0], Integer.parseInt(line[1]), Integer.parseInt(line[2])), line[3]);
        }
        try (Admin admin = Admin.create(properties(bootstrap))) {
            admin.alterReplicaLogDirs(wanted).all().get();
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (true) {
                var infos = admin.describeReplicaLogDirs(wanted.keySet()).all().get();
                if (wanted.entrySet().stream().allMatch(
                        each -> each.getValue().equals(infos.get(each.getKey()).getCurrentReplicaLogDir()))) {
                    return;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not there after 30 s: " + infos);
                }
                Thread.sleep(20);
            }
        }
    }

    private static ConfigEntry config(Admin admin, ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(Set.of(resource)).all().get().get(resource).get(name);
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }
}
