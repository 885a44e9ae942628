import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeSet;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.rest.RESTCatalog;

/** The rows of a table as Iceberg's own library reads them: partition, offset, key, value, one a line. */
public class ReadTable {
  public static void main(String[] arguments) throws Exception {
    try (RESTCatalog catalog = new RESTCatalog()) {
      catalog.initialize(
          "catalog",
          Map.of("uri", arguments[0], "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
      Table table = catalog.loadTable(TableIdentifier.parse(arguments[1]));
      TreeSet<String> rows = new TreeSet<>();
      try (CloseableIterable<Record> found = IcebergGenerics.read(table).build()) {
        for (Record row : found) {
          rows.add(
              String.join(
                  "\t",
                  row.getField("partition").toString(),
                  String.format("%012d", (Long) row.getField("offset")),
                  text(row.getField("key")),
                  text(row.getField("value"))));
        }
      }
      rows.forEach(System.out::println);
    }
  }

  private static String text(Object field) {
    return field == null ? "null" : new String(((ByteBuffer) field).array());
  }
}
