package eos.golden;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;

/** The topologies of tables that are made of other tables, or of a stream. */
final class TableOperators {
  private TableOperators() {}

  static void build(Operator operator, StreamsBuilder builder) {
    switch (operator) {
      case TABLE_FILTER ->
          strings(
              table(builder, "table", Operator.STORE)
                  .filter((key, value) -> !value.startsWith("-")));
      case TABLE_MAP ->
          strings(table(builder, "table", Operator.STORE).mapValues(value -> value + "!"));
      case TO_TABLE ->
          strings(
              builder
                  .stream("in", Consumed.with(Serdes.String(), Serdes.String()))
                  .toTable(Operator.stringStore()));
      case TABLE_JOIN -> strings(left(builder).join(right(builder), Operator::both));
      case TABLE_LEFT_JOIN -> strings(left(builder).leftJoin(right(builder), Operator::both));
      case TABLE_OUTER_JOIN -> strings(left(builder).outerJoin(right(builder), Operator::both));
      case FOREIGN_INNER ->
          strings(left(builder).join(right(builder), TableOperators::foreignKey, Operator::both));
      case FOREIGN_LEFT ->
          strings(left(builder).leftJoin(right(builder), TableOperators::foreignKey, Operator::both));
      case TABLE_GROUP_COUNT ->
          Operator.write(groups(builder).count(Operator.numberStore()), Serdes.Long());
      case TABLE_GROUP_REDUCE ->
          strings(
              groups(builder)
                  .reduce(
                      Operator::concat,
                      (old, value) -> old + "/" + value,
                      Operator.stringStore()));
      case TABLE_GROUP_AGGREGATE ->
          strings(
              groups(builder)
                  .aggregate(
                      () -> "<",
                      (key, value, soFar) -> value.endsWith("-") ? null : soFar + "+" + value,
                      (key, value, soFar) -> value.endsWith("!") ? null : soFar + "/" + value,
                      Operator.stringStore()));
      default -> throw new IllegalArgumentException(operator.toString());
    }
  }

  private static void strings(KTable<String, String> table) {
    Operator.write(table, Serdes.String());
  }

  /** What stands before the first "=", or null if that is nothing. */
  private static String foreignKey(String value) {
    String key = value.split("=", 2)[0];
    return key.isEmpty() ? null : key;
  }

  private static KTable<String, String> left(StreamsBuilder builder) {
    return table(builder, "left", "left");
  }

  private static KTable<String, String> right(StreamsBuilder builder) {
    return table(builder, "right", "right");
  }

  private static KTable<String, String> table(
      StreamsBuilder builder, String topic, String store) {
    return builder.table(
        topic, Consumed.with(Serdes.String(), Serdes.String()), Operator.stringStore(store));
  }

  private static KGroupedTable<String, String> groups(StreamsBuilder builder) {
    return table(builder, "table", "rows")
        .groupBy(
            (key, value) -> KeyValue.pair(Operator.initial(key, value), value),
            Operator.grouped());
  }
}
