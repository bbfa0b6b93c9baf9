package eos.golden;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.ConnectedStoreProvider;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The public methods of the DSL and of the Processor API, from the class files: one per line, with
 * the simple names of its parameters' types.
 */
final class Methods {
  private static final List<Class<?>> CLASSES =
      List.of(
          StreamsBuilder.class,
          KStream.class,
          BranchedKStream.class,
          KTable.class,
          KGroupedStream.class,
          KGroupedTable.class,
          CogroupedKStream.class,
          TimeWindowedKStream.class,
          SessionWindowedKStream.class,
          TimeWindowedCogroupedKStream.class,
          SessionWindowedCogroupedKStream.class,
          GlobalKTable.class,
          Topology.class,
          Processor.class,
          FixedKeyProcessor.class,
          ProcessorSupplier.class,
          FixedKeyProcessorSupplier.class,
          ConnectedStoreProvider.class,
          ProcessorContext.class,
          FixedKeyProcessorContext.class,
          ProcessingContext.class,
          Record.class,
          FixedKeyRecord.class,
          RecordMetadata.class,
          Punctuator.class,
          Cancellable.class,
          TimestampExtractor.class,
          StreamPartitioner.class,
          TopicNameExtractor.class,
          StateStore.class,
          KeyValueStore.class,
          ReadOnlyKeyValueStore.class,
          WindowStore.class,
          ReadOnlyWindowStore.class,
          SessionStore.class,
          ReadOnlySessionStore.class,
          VersionedKeyValueStore.class,
          Stores.class);

  private Methods() {}

  static void write(Path file) throws IOException {
    StringBuilder text =
        new StringBuilder(
            "# The public methods of Kafka Streams 4.3.1. Written by the program in this directory; do not edit.\n");
    for (Class<?> type : CLASSES) {
      SortedSet<String> lines = new TreeSet<>();
      for (Method method : type.getDeclaredMethods()) {
        if (Modifier.isPublic(method.getModifiers()) && !method.isSynthetic() && !ofObject(method)) {
          lines.add(line(type, method));
        }
      }
      lines.forEach(line -> text.append(line).append('\n'));
    }
    Files.writeString(file, text);
  }

  private static boolean ofObject(Method method) {
    return List.of("equals", "hashCode", "toString").contains(method.getName());
  }

  private static String line(Class<?> type, Method method) {
    String parameters =
        Arrays.stream(method.getParameterTypes())
            .map(Class::getSimpleName)
            .collect(Collectors.joining(", "));
    return type.getSimpleName() + "." + method.getName() + "(" + parameters + ")";
  }

  public static void main(String[] args) throws IOException {
    write(Path.of(args[0]));
  }
}
