import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * The properties of Apache Kafka's broker, topics and groups as JSON: what
 * minikafka/config/kafka_4_4_properties.json was made of. Run once for a release: with Kafka's jars
 * (tests/integration/support/java.py) on the class path, {@code java RecordConfigs.java}.
 */
public class RecordConfigs {
    public static void main(String[] args) throws Exception {
        Map<String, String> modes = modes();
        Map<String, Object> all = new TreeMap<>();
        all.put("broker", keys(AbstractKafkaConfig.CONFIG_DEF.configKeys(), modes));
        all.put("topic", keys(LogConfig.configKeys(), Map.of()));
        all.put("group", keys(GroupConfig.CONFIG_DEF.configKeys(), Map.of()));
        System.out.println(new com.fasterxml.jackson.databind.ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(all));
    }

    static Map<String, String> modes() {
        Map<String, String> modes = new TreeMap<>();
        for (String name : DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS) {
            Properties one = new Properties();
            one.put(name, "");
            modes.put(name, DynamicBrokerConfig.perBrokerConfigs(one).isEmpty() ? "cluster-wide" : "per-broker");
        }
        return modes;
    }

    static Map<String, Object> keys(Map<String, ConfigDef.ConfigKey> keys, Map<String, String> modes) {
        Map<String, Object> found = new TreeMap<>();
        for (ConfigDef.ConfigKey key : keys.values()) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("type", key.type.name().toLowerCase(Locale.ROOT));
            one.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            one.put("importance", key.importance.name().toLowerCase(Locale.ROOT));
            if (key.validator != null) one.put("valid", key.validator.toString());
            if (key.internalConfig) one.put("internal", true);
            if (modes.containsKey(key.name)) one.put("update", modes.get(key.name));
            one.put("documentation", key.documentation == null ? "" : key.documentation.strip().replaceAll("\\s+", " "));
            found.put(key.name, one);
        }
        return found;
    }
}
