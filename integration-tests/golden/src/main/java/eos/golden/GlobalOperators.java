package eos.golden;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** The topologies of a stream that is joined with a global table. */
final class GlobalOperators {
  private GlobalOperators() {}

  static void build(Operator operator, StreamsBuilder builder) {
    Consumed<String, String> strings = Consumed.with(Serdes.String(), Serdes.String());
    GlobalKTable<String, String> table =
        builder.globalTable("global", strings, Operator.stringStore());
    KStream<String, String> stream = builder.stream("stream", strings);
    KStream<String, String> joined =
        switch (operator) {
          case GLOBAL_JOIN -> stream.join(table, GlobalOperators::rowKey, GlobalOperators::pair);
          case GLOBAL_LEFT_JOIN ->
              stream.leftJoin(table, GlobalOperators::rowKey, GlobalOperators::pair);
          default -> throw new IllegalArgumentException(operator.toString());
        };
    joined.to(Operator.OUT, Produced.with(Serdes.String(), Serdes.String()));
  }

  /** The part of the value before the first "=", or null if it is empty or the value is null. */
  private static String rowKey(String key, String value) {
    if (value == null) {
      return null;
    }
    String row = value.split("=", 2)[0];
    return row.isEmpty() ? null : row;
  }

  private static String pair(String value, String row) {
    return value + "+" + (row == null ? "none" : row);
  }
}
