import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Many logins in one JVM. Arguments: files of client properties, with "matrix.topic" and "matrix.value" among them. For
 * each a line: the file's name, "read" or "refused", and the value that was written and read or the client's own words.
 */
public final class SecurityMatrix {
    private static final int AT_ONCE = 8;

    public static void main(String[] files) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<Future<String>> lines = new ArrayList<>();
        for (String file : files) {
            lines.add(pool.submit((Callable<String>) () -> Path.of(file).getFileName() + "\t" + outcome(file)));
        }
        for (Future<String> line : lines) {
            out.println(line.get());
        }
        out.flush();
        pool.shutdown();
    }

    private static String outcome(String file) throws Exception {
        Properties config = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            config.load(reader);
        }
        String topic = (String) config.remove("matrix.topic");
        String value = (String) config.remove("matrix.value");
        try {
            return "read\t" + exchange(config, topic, value);
        } catch (Exception error) {
            return "refused\t" + words(error);
        }
    }

    private static String exchange(Properties config, String topic, String value) throws Exception {
        RecordMetadata written;
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            written = producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
        }
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, written.offset());
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(10))) {
                    return record.value();
                }
            }
        }
    }

    private static String words(Throwable error) {
        StringBuilder words = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (!(each instanceof ExecutionException)) {
                words.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append(" ");
            }
        }
        return words.toString().replaceAll("\\s+", " ").trim();
    }
}
