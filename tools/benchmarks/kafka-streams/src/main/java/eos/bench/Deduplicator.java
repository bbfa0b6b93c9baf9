package eos.bench;

import java.time.Duration;
import java.util.Arrays;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Forwards the first record of each id, as users of Kafka Streams write it by hand: the id and the time of each new record go
 * into a window store, and a record is a duplicate if the store has its id less than a window before or after it.
 *
 * <p>The store's retention is the window, and it has the defaults of a store that a processor adds: a changelog, no cache.
 */
final class Deduplicator implements Processor<byte[], byte[], byte[], byte[]> {
  private static final String STORE = "seen";
  /** The place of the id in a value. */
  private static final int ID_BEGIN = 7;

  private static final int ID_END = 23;

  private final long reach;
  private ProcessorContext<byte[], byte[]> context;
  private WindowStore<byte[], Long> seen;

  private Deduplicator(Duration window) {
    reach = window.toMillis() - 1;
  }

  static ProcessorSupplier<byte[], byte[], byte[], byte[]> within(Duration window) {
    return new ProcessorSupplier<>() {
      @Override
      public Processor<byte[], byte[], byte[], byte[]> get() {
        return new Deduplicator(window);
      }

      @Override
      public Set<StoreBuilder<?>> stores() {
        return Set.of(
            Stores.windowStoreBuilder(
                Stores.persistentWindowStore(STORE, window, window, false),
                Serdes.ByteArray(),
                Serdes.Long()));
      }
    };
  }

  @Override
  public void init(ProcessorContext<byte[], byte[]> context) {
    this.context = context;
    seen = context.getStateStore(STORE);
  }

  @Override
  public void process(Record<byte[], byte[]> record) {
    byte[] id = Arrays.copyOfRange(record.value(), ID_BEGIN, ID_END);
    long time = record.timestamp();
    if (isDuplicate(id, time)) {
      return;
    }
    seen.put(id, time, time);
    context.forward(record);
  }

  private boolean isDuplicate(byte[] id, long time) {
    try (WindowStoreIterator<Long> found = seen.fetch(id, time - reach, time + reach)) {
      return found.hasNext();
    }
  }
}
