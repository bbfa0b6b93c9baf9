package eos.golden;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The topologies, as a Kafka Streams user writes them. Each has one store, "store", and writes
 * every update to the topic "out". The README says in one line each what their functions compute.
 */
enum Operator {
  COUNT(List.of("in")),
  REDUCE_SUM(List.of("in")),
  REDUCE_CONCAT(List.of("in")),
  AGGREGATE(List.of("in")),
  COGROUP(List.of("in", "more")),
  /** The same grouped stream twice. */
  COGROUP_TWICE(List.of("in")),
  GROUP_BY_COUNT(List.of("in")),
  WORD_COUNT(List.of("in")),
  TABLE(List.of("table")),
  JOIN(List.of("stream", "table")),
  LEFT_JOIN(List.of("stream", "table")),
  GLOBAL_JOIN(List.of("stream", "global")),
  GLOBAL_LEFT_JOIN(List.of("stream", "global")),
  WINDOW_COUNT(List.of("in")),
  WINDOW_AGGREGATE(List.of("in")),
  FILTER_WINDOW_COUNT(List.of("in")),
  HOPPING_COUNT(List.of("in")),
  HOPPING_AGGREGATE(List.of("in")),
  HOPPING_REDUCE(List.of("in")),
  HOPPING_AGGREGATE_ON_CLOSE(List.of("in")),
  WINDOW_COUNT_ON_CLOSE(List.of("in")),
  HOPPING_COUNT_ON_CLOSE(List.of("in")),
  /** Final counts, summed in windows of ten times the length. */
  LONGER_ON_CLOSE(List.of("in")),
  SESSION_COUNT(List.of("in")),
  SESSION_COUNT_ON_CLOSE(List.of("in")),
  SESSION_AGGREGATE(List.of("in")),
  SESSION_REDUCE(List.of("in")),
  SESSION_AGGREGATE_ON_CLOSE(List.of("in")),
  SLIDING_AGGREGATE(List.of("in")),
  SLIDING_AGGREGATE_ON_CLOSE(List.of("in")),
  JOIN_WITHIN(List.of("left", "right")),
  LEFT_JOIN_WITHIN(List.of("left", "right")),
  OUTER_JOIN_WITHIN(List.of("left", "right")),
  TABLE_FILTER(List.of("table")),
  TABLE_MAP(List.of("table")),
  TO_TABLE(List.of("in")),
  TABLE_JOIN(List.of("left", "right")),
  TABLE_LEFT_JOIN(List.of("left", "right")),
  TABLE_OUTER_JOIN(List.of("left", "right")),
  FOREIGN_INNER(List.of("left", "right")),
  FOREIGN_LEFT(List.of("left", "right")),
  TABLE_GROUP_COUNT(List.of("table")),
  TABLE_GROUP_REDUCE(List.of("table")),
  TABLE_GROUP_AGGREGATE(List.of("table"));

  static final String STORE = "store";
  static final String OUT = "out";

  final List<String> topics;

  Operator(List<String> topics) {
    this.topics = topics;
  }

  String id() {
    return name().toLowerCase(Locale.ROOT);
  }

  boolean isWindowed() {
    return switch (this) {
      case WINDOW_COUNT,
          WINDOW_AGGREGATE,
          FILTER_WINDOW_COUNT,
          HOPPING_COUNT,
          HOPPING_AGGREGATE,
          HOPPING_REDUCE,
          HOPPING_AGGREGATE_ON_CLOSE,
          WINDOW_COUNT_ON_CLOSE,
          HOPPING_COUNT_ON_CLOSE,
          LONGER_ON_CLOSE,
          SLIDING_AGGREGATE,
          SLIDING_AGGREGATE_ON_CLOSE -> true;
      default -> isSession();
    };
  }

  boolean isSession() {
    return switch (this) {
      case SESSION_COUNT,
          SESSION_COUNT_ON_CLOSE,
          SESSION_AGGREGATE,
          SESSION_REDUCE,
          SESSION_AGGREGATE_ON_CLOSE ->
          true;
      default -> false;
    };
  }

  /** Whether the operator joins a stream with a global table. */
  boolean isGlobalJoin() {
    return this == GLOBAL_JOIN || this == GLOBAL_LEFT_JOIN;
  }

  /** Whether it joins two streams. */
  boolean isStreamJoin() {
    return switch (this) {
      case JOIN_WITHIN, LEFT_JOIN_WITHIN, OUTER_JOIN_WITHIN -> true;
      default -> false;
    };
  }

  /** Whether it joins two tables. */
  boolean isTableJoin() {
    return switch (this) {
      case TABLE_JOIN, TABLE_LEFT_JOIN, TABLE_OUTER_JOIN, FOREIGN_INNER, FOREIGN_LEFT -> true;
      default -> false;
    };
  }

  boolean isSliding() {
    return this == SLIDING_AGGREGATE || this == SLIDING_AGGREGATE_ON_CLOSE;
  }

  /** Whether it emits final results only. */
  boolean isOnClose() {
    return switch (this) {
      case WINDOW_COUNT_ON_CLOSE,
          HOPPING_COUNT_ON_CLOSE,
          LONGER_ON_CLOSE,
          HOPPING_AGGREGATE_ON_CLOSE,
          SESSION_COUNT_ON_CLOSE,
          SESSION_AGGREGATE_ON_CLOSE,
          SLIDING_AGGREGATE_ON_CLOSE -> true;
      default -> false;
    };
  }

  /** The length of the windows of the results. */
  long outMs(Case of) {
    // Windows of no length can't be decoded.
    return this == LONGER_ON_CLOSE ? 10 * of.sizeMs : Math.max(1, of.sizeMs);
  }

  boolean takesNumbers() {
    return this == REDUCE_SUM;
  }

  /** Whether its results are numbers; strings otherwise. */
  boolean givesNumbers() {
    return switch (this) {
      case COUNT,
          REDUCE_SUM,
          GROUP_BY_COUNT,
          WORD_COUNT,
          WINDOW_COUNT,
          FILTER_WINDOW_COUNT,
          HOPPING_COUNT,
          WINDOW_COUNT_ON_CLOSE,
          HOPPING_COUNT_ON_CLOSE,
          LONGER_ON_CLOSE,
          SESSION_COUNT,
          SESSION_COUNT_ON_CLOSE,
          TABLE_GROUP_COUNT -> true;
      default -> false;
    };
  }

  /** The topology; {@code retention}: how long windows stay in the store, null for the default. */
  Topology build(Case of, Duration retention) {
    StreamsBuilder builder = new StreamsBuilder();
    Consumed<String, String> strings = Consumed.with(Serdes.String(), Serdes.String());
    switch (this) {
      case COUNT ->
          write(
              builder.stream("in", strings).groupByKey(grouped()).count(numberStore()),
              Serdes.Long());
      case REDUCE_SUM ->
          write(
              builder
                  .stream("in", Consumed.with(Serdes.String(), Serdes.Long()))
                  .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                  .reduce(Long::sum, numberStore()),
              Serdes.Long());
      case REDUCE_CONCAT ->
          write(
              builder
                  .stream("in", strings)
                  .groupByKey(grouped())
                  .reduce(
                      (old, value) -> value.equals("-") ? null : old + "|" + value, stringStore()),
              Serdes.String());
      case AGGREGATE ->
          write(
              builder
                  .stream("in", strings)
                  .groupByKey(grouped())
                  .aggregate(() -> "<", Operator::append, stringStore()),
              Serdes.String());
      case COGROUP -> {
        KGroupedStream<String, Integer> lengths =
            builder
                .stream("more", strings)
                .mapValues(value -> value == null ? null : value.length())
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Integer()));
        write(
            builder
                .stream("in", strings)
                .groupByKey(grouped())
                .cogroup(Operator::append)
                .cogroup(lengths, (key, length, soFar) -> soFar + "#" + length + ";")
                .aggregate(() -> "<", stringStore()),
            Serdes.String());
      }
      case COGROUP_TWICE -> {
        KGroupedStream<String, String> group = builder.stream("in", strings).groupByKey(grouped());
        write(
            group
                .cogroup(Operator::append)
                .cogroup(group, (key, value, soFar) -> soFar + "#" + value + ";")
                .aggregate(() -> "<", stringStore()),
            Serdes.String());
      }
      case GROUP_BY_COUNT ->
          write(
              builder
                  .stream("in", strings)
                  .groupBy(Operator::initial, grouped())
                  .count(numberStore()),
              Serdes.Long());
      case WORD_COUNT ->
          write(
              builder
                  .stream("in", strings)
                  .flatMapValues(line -> Arrays.asList(line.split(" ")))
                  .groupBy((key, word) -> word, grouped())
                  .count(numberStore()),
              Serdes.Long());
      case TABLE -> write(table(builder, strings), Serdes.String());
      case JOIN ->
          builder
              .stream("stream", strings)
              .join(table(builder, strings), Operator::pair, joined())
              .to(OUT, Produced.with(Serdes.String(), Serdes.String()));
      case LEFT_JOIN ->
          builder
              .stream("stream", strings)
              .leftJoin(table(builder, strings), Operator::pair, joined())
              .to(OUT, Produced.with(Serdes.String(), Serdes.String()));
      case WINDOW_COUNT, HOPPING_COUNT ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .count(windowStore(Serdes.Long(), retention)),
              Serdes.Long());
      case FILTER_WINDOW_COUNT ->
          writeWindows(
              of,
              windows(
                      of,
                      builder.stream("in", strings).filter((key, value) -> !value.equals("drop")))
                  .count(windowStore(Serdes.Long(), retention)),
              Serdes.Long());
      case WINDOW_AGGREGATE, HOPPING_AGGREGATE ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .aggregate(
                      () -> "<",
                      Operator::append,
                      windowStore(Serdes.String(), retention)),
              Serdes.String());
      case HOPPING_REDUCE ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .reduce(Operator::concat, windowStore(Serdes.String(), retention)),
              Serdes.String());
      case HOPPING_AGGREGATE_ON_CLOSE ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .emitStrategy(EmitStrategy.onWindowClose())
                  .aggregate(
                      () -> "<", Operator::append, windowStore(Serdes.String(), retention)),
              Serdes.String());
      case WINDOW_COUNT_ON_CLOSE, HOPPING_COUNT_ON_CLOSE ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .emitStrategy(EmitStrategy.onWindowClose())
                  .count(windowStore(Serdes.Long(), retention)),
              Serdes.Long());
      case LONGER_ON_CLOSE ->
          writeWindows(
              of,
              windows(of, builder.stream("in", strings))
                  .emitStrategy(EmitStrategy.onWindowClose())
                  .count(
                      Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("first")
                          .withKeySerde(Serdes.String())
                          .withRetention(retention)
                          .withValueSerde(Serdes.Long()))
                  .toStream()
                  .groupBy(
                      (windowed, count) -> windowed.key(),
                      Grouped.with(Serdes.String(), Serdes.Long()))
                  .windowedBy(
                      TimeWindows.ofSizeAndGrace(
                          Duration.ofMillis(10 * of.sizeMs), Duration.ofMillis(of.sizeMs)))
                  .emitStrategy(EmitStrategy.onWindowClose())
                  .reduce(Long::sum, windowStore(Serdes.Long(), retention)),
              Serdes.Long());
      case SESSION_COUNT ->
          writeSessions(sessions(of, builder.stream("in", strings)).count(sessionStore(Serdes.Long(), retention)), Serdes.Long());
      case SESSION_COUNT_ON_CLOSE ->
          writeSessions(
              sessions(of, builder.stream("in", strings))
                  .emitStrategy(EmitStrategy.onWindowClose())
                  .count(sessionStore(Serdes.Long(), retention)),
              Serdes.Long());
      case SLIDING_AGGREGATE, SLIDING_AGGREGATE_ON_CLOSE ->
          writeWindows(
              of,
              builder
                  .stream("in", strings)
                  .groupByKey(grouped())
                  .windowedBy(
                      SlidingWindows.ofTimeDifferenceAndGrace(
                          Duration.ofMillis(of.sizeMs), Duration.ofMillis(of.graceMs)))
                  .emitStrategy(
                      isOnClose() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate())
                  .aggregate(
                      () -> "<", Operator::append, windowStore(Serdes.String(), retention)),
              Serdes.String());
      case SESSION_REDUCE ->
          writeSessions(
              sessions(of, builder.stream("in", strings))
                  .reduce(Operator::concat, sessionStore(Serdes.String(), retention)),
              Serdes.String());
      case SESSION_AGGREGATE, SESSION_AGGREGATE_ON_CLOSE ->
          writeSessions(
              sessions(of, builder.stream("in", strings))
                  .emitStrategy(
                      isOnClose() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate())
                  .aggregate(
                      () -> "<",
                      Operator::append,
                      (key, earlier, later) -> earlier + "(" + later + ")",
                      sessionStore(Serdes.String(), retention)),
              Serdes.String());
      case JOIN_WITHIN, LEFT_JOIN_WITHIN, OUTER_JOIN_WITHIN ->
          StreamJoinOperators.build(of, builder);
      case GLOBAL_JOIN, GLOBAL_LEFT_JOIN -> GlobalOperators.build(this, builder);
      default -> TableOperators.build(this, builder);
    }
    return builder.build();
  }

  /** A side without record is "-". */
  static String both(String left, String right) {
    return (left == null ? "-" : left) + "+" + (right == null ? "-" : right);
  }

  static String concat(String old, String value) {
    return old + "|" + value;
  }

  private static String append(String key, String value, String soFar) {
    // Windowed aggregations hand null values to their functions: Java writes "null".
    return "-".equals(value) ? null : soFar + value + ";";
  }

  /** The value's first character, null where it is empty; the old key where there is no value. */
  static String initial(String key, String value) {
    if (value == null) {
      return key;
    }
    return value.isEmpty() ? null : value.substring(0, 1);
  }

  private static String pair(String value, String row) {
    return value.equals("-") ? null : value + "+" + (row == null ? "none" : row);
  }

  private static KTable<String, String> table(
      StreamsBuilder builder, Consumed<String, String> strings) {
    return builder.table("table", strings, stringStore());
  }

  private static TimeWindowedKStream<String, String> windows(
      Case of, KStream<String, String> stream) {
    TimeWindows windows =
        TimeWindows.ofSizeAndGrace(Duration.ofMillis(of.sizeMs), Duration.ofMillis(of.graceMs));
    if (of.advanceMs > 0) {
      windows = windows.advanceBy(Duration.ofMillis(of.advanceMs));
    }
    return stream.groupByKey(grouped()).windowedBy(windows);
  }

  static Grouped<String, String> grouped() {
    return Grouped.with(Serdes.String(), Serdes.String());
  }

  private static Joined<String, String, String> joined() {
    return Joined.with(Serdes.String(), Serdes.String(), Serdes.String());
  }

  static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> numberStore() {
    return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(STORE)
        .withKeySerde(Serdes.String())
        .withValueSerde(Serdes.Long());
  }

  static Materialized<String, String, KeyValueStore<Bytes, byte[]>> stringStore() {
    return stringStore(STORE);
  }

  static Materialized<String, String, KeyValueStore<Bytes, byte[]>> stringStore(String name) {
    return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name)
        .withKeySerde(Serdes.String())
        .withValueSerde(Serdes.String());
  }

  private static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> windowStore(
      Serde<V> values, Duration retention) {
    Materialized<String, V, WindowStore<Bytes, byte[]>> store =
        Materialized.<String, V, WindowStore<Bytes, byte[]>>as(STORE)
            .withKeySerde(Serdes.String())
            .withValueSerde(values);
    return retention == null ? store : store.withRetention(retention);
  }

  static <V> void write(KTable<String, V> table, Serde<V> values) {
    table.toStream().to(OUT, Produced.with(Serdes.String(), values));
  }

  private static SessionWindowedKStream<String, String> sessions(
      Case of, KStream<String, String> stream) {
    return stream
        .groupByKey(grouped())
        .windowedBy(
            SessionWindows.ofInactivityGapAndGrace(
                Duration.ofMillis(of.sizeMs), Duration.ofMillis(of.graceMs)));
  }

  private static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> sessionStore(
      Serde<V> values, Duration retention) {
    Materialized<String, V, SessionStore<Bytes, byte[]>> store =
        Materialized.<String, V, SessionStore<Bytes, byte[]>>as(STORE)
            .withKeySerde(Serdes.String())
            .withValueSerde(values);
    return retention == null ? store : store.withRetention(retention);
  }

  private static <V> void writeSessions(KTable<Windowed<String>, V> table, Serde<V> values) {
    Serde<Windowed<String>> keys = WindowedSerdes.sessionWindowedSerdeFrom(String.class);
    table.toStream().to(OUT, Produced.with(keys, values));
  }

  private static <V> void writeWindows(
      Case of, KTable<Windowed<String>, V> table, Serde<V> values) {
    Serde<Windowed<String>> keys =
        WindowedSerdes.timeWindowedSerdeFrom(String.class, of.operator.outMs(of));
    table.toStream().to(OUT, Produced.with(keys, values));
  }
}
