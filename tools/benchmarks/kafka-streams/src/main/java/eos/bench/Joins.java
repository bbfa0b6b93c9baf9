package eos.bench;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;

/** The joins of two topics. A result is the left value followed by the right one. */
final class Joins {
  private static final Set<String> STREAMS = Set.of("inner", "left", "hot-key", "cold-keys");
  private static final Set<String> TABLES = Set.of("stream-table", "table-table", "foreign", "orders");

  private static final Duration REACH = Duration.ofSeconds(5);
  /** That of the works about a hot key. */
  private static final Duration HOT_REACH = Duration.ofSeconds(15);

  private static final Duration GRACE = Duration.ofSeconds(5);

  /** The place of the foreign key in a value. */
  private static final int FOREIGN_BEGIN = 14;

  private static final int FOREIGN_END = 18;

  private static final Serde<byte[]> BYTES = Serdes.ByteArray();

  private Joins() {}

  static boolean has(String work) {
    return STREAMS.contains(work) || TABLES.contains(work);
  }

  static void declare(
      StreamsBuilder builder, Map<String, String> options, String work, String out) {
    String left = options.get("in");
    String right = options.get("right");
    KStream<byte[], byte[]> results;
    if (work.equals("stream-table")) {
      results =
          stream(builder, left)
              .join(table(builder, right, "right"), Joins::both, Joined.with(BYTES, BYTES, BYTES));
    } else if (work.equals("table-table")) {
      results =
          table(builder, left, "left").join(table(builder, right, "right"), Joins::both).toStream();
    } else if (work.equals("foreign") || work.equals("orders")) {
      results =
          table(builder, left, "left")
              .join(
                  table(builder, right, "right"),
                  value -> Arrays.copyOfRange(value, FOREIGN_BEGIN, FOREIGN_END),
                  Joins::both,
                  Materialized.with(BYTES, BYTES))
              .toStream();
    } else {
      boolean hot = !work.equals("inner") && !work.equals("left");
      JoinWindows windows =
          JoinWindows.ofTimeDifferenceAndGrace(hot ? HOT_REACH : REACH, GRACE);
      StreamJoined<byte[], byte[], byte[]> stores = StreamJoined.with(BYTES, BYTES, BYTES);
      KStream<byte[], byte[]> one = stream(builder, left);
      KStream<byte[], byte[]> other = stream(builder, right);
      results =
          work.equals("inner")
              ? one.join(other, Joins::both, windows, stores)
              : one.leftJoin(other, Joins::both, windows, stores);
    }
    results.to(out, Produced.with(BYTES, BYTES));
  }

  private static KStream<byte[], byte[]> stream(StreamsBuilder builder, String topic) {
    return builder.stream(topic, Consumed.with(BYTES, BYTES));
  }

  private static KTable<byte[], byte[]> table(StreamsBuilder builder, String topic, String store) {
    return builder.table(
        topic,
        Consumed.with(BYTES, BYTES),
        Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as(store)
            .withKeySerde(BYTES)
            .withValueSerde(BYTES));
  }

  private static byte[] both(byte[] left, byte[] right) {
    if (right == null) {
      return left;
    }
    byte[] both = Arrays.copyOf(left, left.length + right.length);
    System.arraycopy(right, 0, both, left.length, right.length);
    return both;
  }
}
