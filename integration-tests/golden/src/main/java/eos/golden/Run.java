package eos.golden;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.SessionWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.Window;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.test.TestRecord;

/** One run of a case in a TopologyTestDriver, and what it showed. */
final class Run {
  /** One JSON object per input, output, drop or error, in order. */
  final List<Map<String, Object>> events = new ArrayList<>();

  /** One JSON object per entry of the store, in order of key and window. */
  final List<Map<String, Object>> store = new ArrayList<>();

  private final Case of;
  private final TopologyTestDriver driver;
  private final TestOutputTopic<?, ?> out;
  private long dropped;

  /** Runs it: the engine of the stores, and how long windows stay (null: Streams' default). */
  static Run of(Case of, Class<? extends DslStoreSuppliers> engine, Duration retention) {
    Path state = temporary();
    Properties config = new Properties();
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, "golden");
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
    config.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
    // Every update is emitted; a cache would leave some out.
    config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, engine);
    config.put(StreamsConfig.DEFAULT_TIMESTAMP_EXTRACTOR_CLASS_CONFIG, extractor(of));
    // The clock of the driver stands still, so the default of a second would hold back final results.
    config.put(
        StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
    config.put(
        StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
    TopologyTestDriver driver =
        new TopologyTestDriver(
            of.operator.build(of, retention), config, Instant.ofEpochMilli(0));
    try {
      Run run = new Run(of, driver);
      if (run.pipeAll()) {
        run.readStore();
      }
      return run;
    } finally {
      driver.close();
      delete(state);
    }
  }

  private Run(Case of, TopologyTestDriver driver) {
    this.of = of;
    this.driver = driver;
    Deserializer<?> keys = new StringDeserializer();
    if (of.operator.isSession()) {
      keys = new SessionWindowedDeserializer<>(new StringDeserializer());
    } else if (of.operator.isWindowed()) {
      keys = new TimeWindowedDeserializer<>(new StringDeserializer(), of.operator.outMs(of));
    }
    Deserializer<?> values =
        of.operator.givesNumbers() ? new LongDeserializer() : new StringDeserializer();
    this.out = driver.createOutputTopic(Operator.OUT, keys, values);
  }

  /** Whether it came to the end. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  private boolean pipeAll() {
    Serializer values =
        of.operator.takesNumbers() ? new LongSerializer() : new StringSerializer();
    for (Case.Input input : of.inputs) {
      events.add(
          Map.of(
              "in",
              map(
                  "topic", input.topic(),
                  "key", input.key(),
                  "value", input.value(),
                  "timestamp", input.timestamp())));
      // As an Instant: the other constructors refuse negative timestamps.
      Instant timestamp = Instant.ofEpochMilli(input.timestamp());
      TestRecord record =
          new TestRecord(input.key(), input.value(), new RecordHeaders(), timestamp);
      try {
        driver
            .createInputTopic(input.topic(), new StringSerializer(), values)
            .pipeInput(record);
      } catch (RuntimeException e) {
        events.add(Map.of("error", e.getClass().getSimpleName()));
        return false;
      }
      readOutputs();
      readDropped();
    }
    return true;
  }

  private void readOutputs() {
    while (!out.isEmpty()) {
      TestRecord<?, ?> record = out.readRecord();
      Map<String, Object> fields = map("topic", Operator.OUT);
      putKey(fields, record.key());
      fields.put("value", record.value());
      fields.put("timestamp", record.timestamp());
      events.add(Map.of("out", fields));
    }
  }

  private void readDropped() {
    double total =
        driver.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().name().equals("dropped-records-total"))
            .mapToDouble(metric -> (double) metric.getValue().metricValue())
            .sum();
    long now = Math.round(total);
    if (now > dropped) {
      events.add(Map.of("dropped", now - dropped));
    }
    dropped = now;
  }

  private void readStore() {
    if (of.operator.isStreamJoin() || of.operator.isTableJoin()) {
      // It has several stores, and none of them is a result.
      return;
    }
    if (of.operator.isSession()) {
      try (KeyValueIterator<Windowed<String>, Object> all =
          driver.<String, Object>getSessionStore(Operator.STORE).fetch(null, null)) {
        all.forEachRemaining(this::addSession);
      }
    } else if (of.operator.isWindowed()) {
      try (KeyValueIterator<Windowed<String>, ValueAndTimestamp<Object>> all =
          driver.<String, Object>getTimestampedWindowStore(Operator.STORE).all()) {
        all.forEachRemaining(this::addToStore);
      }
    } else {
      try (KeyValueIterator<String, ValueAndTimestamp<Object>> all =
          driver.<String, Object>getTimestampedKeyValueStore(Operator.STORE).all()) {
        all.forEachRemaining(this::addToStore);
      }
    }
    // Engines differ in the order of windows. Keys here sort alike as UTF-16 and as bytes.
    store.sort(Comparator.comparing(Run::keyOf).thenComparing(Run::startOf));
  }

  private void addToStore(KeyValue<?, ValueAndTimestamp<Object>> entry) {
    Map<String, Object> fields = new LinkedHashMap<>();
    putKey(fields, entry.key);
    fields.put("value", entry.value.value());
    fields.put("timestamp", entry.value.timestamp());
    store.add(fields);
  }

  private void addSession(KeyValue<?, Object> entry) {
    Map<String, Object> fields = new LinkedHashMap<>();
    putKey(fields, entry.key);
    fields.put("value", entry.value);
    store.add(fields);
  }

  private static String keyOf(Map<String, Object> entry) {
    return (String) entry.get("key");
  }

  private static long startOf(Map<String, Object> entry) {
    return entry.get("window") instanceof Map<?, ?> window ? (long) window.get("start") : 0;
  }

  private static void putKey(Map<String, Object> fields, Object key) {
    if (key instanceof Windowed<?> windowed) {
      Window window = windowed.window();
      fields.put("key", windowed.key());
      fields.put("window", map("start", window.start(), "end", window.end()));
    } else {
      fields.put("key", key);
    }
  }

  /** A map of names and values in this order; values may be null. */
  static Map<String, Object> map(Object... fields) {
    Map<String, Object> map = new LinkedHashMap<>();
    for (int at = 0; at < fields.length; at += 2) {
      map.put((String) fields[at], fields[at + 1]);
    }
    return map;
  }

  private static Class<?> extractor(Case of) {
    if (of.negative == null) {
      return FailOnInvalidTimestamp.class;
    }
    return switch (of.negative) {
      case FAIL -> FailOnInvalidTimestamp.class;
      case SKIP -> LogAndSkipOnInvalidTimestamp.class;
      case PARTITION_TIME -> UsePartitionTimeOnInvalidTimestamp.class;
    };
  }

  private static Path temporary() {
    try {
      return Files.createTempDirectory("golden");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void delete(Path directory) {
    try (Stream<Path> files = Files.walk(directory)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.delete(file);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
