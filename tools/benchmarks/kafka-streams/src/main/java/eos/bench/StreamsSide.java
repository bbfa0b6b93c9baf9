package eos.bench;

import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The benchmark's work as a Kafka Streams user writes it.
 *
 * <p>Arguments are key=value: bootstrap, app, in, out, dir, work=map|pass|count|count-per-commit|dedup|tumbling|hopping|sessions|on-close,
 * stream-table|inner|left|table-table|foreign|orders|hot-key|cold-keys, right (the second topic of a join),
 * guarantee=eos|alos, commit=milliseconds, threads; and p.NAME=VALUE for any property of Kafka Streams. With
 * warm=RECORDS and warmout=TOPIC a first application in the same JVM passes at least so many records
 * of the input to another topic, so that the code is compiled when the one that counts begins.
 */
public final class StreamsSide {
  private static final long WARM_LIMIT_MS = 300_000;

  private static final Duration WINDOW = Duration.ofSeconds(30);
  private static final Duration ADVANCE = Duration.ofMillis(7_500);
  private static final Duration GAP = Duration.ofSeconds(10);
  private static final Duration GRACE = Duration.ofSeconds(5);

  private StreamsSide() {}

  /** The record as a class: data binding, not a tree. */
  @JsonPropertyOrder({"user", "page", "ms", "seq", "pad", "slow"})
  public static final class View {
    public String user;
    public String page;
    public int ms;
    public long seq;
    public String pad;
    public boolean slow;
  }

  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final ObjectReader READER = MAPPER.readerFor(View.class);
  private static final ObjectWriter WRITER = MAPPER.writerFor(View.class);

  private static View read(byte[] value) {
    try {
      return READER.readValue(value);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static byte[] write(View view) {
    try {
      return WRITER.writeValueAsBytes(view);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (String arg : args) {
      int at = arg.indexOf('=');
      options.put(arg.substring(0, at), arg.substring(at + 1));
    }
    long warm = Long.parseLong(options.getOrDefault("warm", "0"));
    if (warm > 0) {
      warmUp(options, warm);
    }
    KafkaStreams streams = streams(options, options.get("app"), options.get("out"));
    CountDownLatch done = new CountDownLatch(1);
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  streams.close();
                  done.countDown();
                }));
    streams.start();
    done.await();
  }

  private static void warmUp(Map<String, String> options, long records) throws Exception {
    String app = options.get("app") + "-warm";
    long end = System.currentTimeMillis() + WARM_LIMIT_MS;
    try (KafkaStreams streams = streams(options, app, options.get("warmout"));
        Admin admin = Admin.create(Map.of("bootstrap.servers", options.get("bootstrap")))) {
      streams.start();
      while (passed(admin, app) < records) {
        if (System.currentTimeMillis() > end) {
          throw new IllegalStateException("the warm-up takes too long");
        }
        Thread.sleep(50);
      }
    }
  }

  private static long passed(Admin admin, String app) throws InterruptedException {
    try {
      return admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get().values()
          .stream().mapToLong(offset -> offset == null ? 0 : offset.offset()).sum();
    } catch (java.util.concurrent.ExecutionException e) {
      return 0; // The group is not there yet, or its coordinator is busy.
    }
  }

  private static KafkaStreams streams(Map<String, String> options, String app, String out) {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, app);
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
    properties.put(
        StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
        options.getOrDefault("guarantee", "eos").equals("eos")
            ? StreamsConfig.EXACTLY_ONCE_V2
            : StreamsConfig.AT_LEAST_ONCE);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, options.getOrDefault("commit", "100"));
    properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, options.getOrDefault("threads", "1"));
    properties.put(StreamsConfig.STATE_DIR_CONFIG, options.get("dir"));
    options.forEach(
        (key, value) -> {
          if (key.startsWith("p.")) {
            properties.put(key.substring(2), value);
          }
        });

    StreamsBuilder builder = new StreamsBuilder();
    Serde<byte[]> bytes = Serdes.ByteArray();
    String work = options.getOrDefault("work", "map");
    if (Joins.has(work)) {
      Joins.declare(builder, options, work, out);
      return built(builder, properties);
    }
    KStream<byte[], byte[]> input = builder.stream(options.get("in"), Consumed.with(bytes, bytes));
    if (work.equals("pass")) {
      input.to(out, Produced.with(bytes, bytes));
    } else if (work.equals("dedup")) {
      input.process(Deduplicator.within(WINDOW)).to(out, Produced.with(bytes, bytes));
    } else if (work.startsWith("count")) {
      // What a cache holds back is set by statestore.cache.max.bytes.
      input
          .groupByKey(Grouped.with(bytes, bytes))
          .count(
              Materialized.<byte[], Long>as(Stores.persistentKeyValueStore("counts"))
                  .withKeySerde(bytes)
                  .withValueSerde(Serdes.Long()))
          .toStream()
          .to(out, Produced.with(bytes, Serdes.Long()));
    } else if (work.equals("sessions")) {
      input
          .groupByKey(Grouped.with(bytes, bytes))
          .windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
          .count(
              Materialized.<byte[], Long, SessionStore<Bytes, byte[]>>as("counts")
                  .withKeySerde(bytes)
                  .withValueSerde(Serdes.Long()))
          .toStream()
          .to(out, Produced.with(new WindowedSerdes.SessionWindowedSerde<>(bytes), Serdes.Long()));
    } else if (!work.equals("map")) {
      TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, GRACE);
      TimeWindowedKStream<byte[], byte[]> windowed =
          input
              .groupByKey(Grouped.with(bytes, bytes))
              .windowedBy(work.equals("hopping") ? windows.advanceBy(ADVANCE) : windows);
      if (work.equals("on-close")) {
        windowed = windowed.emitStrategy(EmitStrategy.onWindowClose());
      }
      windowed
          .count(
              Materialized.<byte[], Long, WindowStore<Bytes, byte[]>>as("counts")
                  .withKeySerde(bytes)
                  .withValueSerde(Serdes.Long()))
          .toStream()
          .to(
              out,
              Produced.with(
                  new WindowedSerdes.TimeWindowedSerde<>(bytes, WINDOW.toMillis()),
                  Serdes.Long()));
    } else {
      input
          .mapValues(StreamsSide::read)
          .mapValues(
              view -> {
                view.slow = view.ms > 500;
                return view;
              })
          .filter((key, view) -> view.ms % 10 != 0)
          .mapValues(StreamsSide::write)
          .to(out, Produced.with(bytes, bytes));
    }
    return built(builder, properties);
  }

  private static KafkaStreams built(StreamsBuilder builder, Properties properties) {
    KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
    streams.setGlobalStateRestoreListener(new Restored());
    return streams;
  }

  /** Says after each store how many records were read so far, and in how long a time. */
  private static final class Restored implements StateRestoreListener {
    private long began;
    private long records;

    @Override
    public synchronized void onRestoreStart(TopicPartition at, String store, long from, long to) {
      if (began == 0) {
        began = System.nanoTime();
      }
    }

    @Override
    public void onBatchRestored(TopicPartition at, String store, long end, long count) {}

    @Override
    public synchronized void onRestoreEnd(TopicPartition at, String store, long total) {
      records += total;
      System.out.println("restored " + records + " " + (System.nanoTime() - began) / 1e6);
    }
  }
}
