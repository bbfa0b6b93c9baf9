package eos.golden;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers;

/**
 * Runs every case and writes one file each; the argument is the directory. Beside it, writes the
 * list of methods.
 */
public final class Main {
  /** So long that no window leaves the store: a file shows the last value of each. */
  private static final Duration FOR_EVER = Duration.ofMillis(1L << 60);

  private Main() {}

  public static void main(String[] args) throws IOException {
    List<Case> cases = new ArrayList<>();
    cases.addAll(AggregationCases.all());
    cases.addAll(CogroupCases.all());
    cases.addAll(GroupByCases.all());
    cases.addAll(TableCases.all());
    cases.addAll(JoinCases.all());
    cases.addAll(GlobalCases.all());
    cases.addAll(WindowCases.all());
    cases.addAll(HoppingCases.all());
    cases.addAll(OnCloseCases.all());
    cases.addAll(SessionCases.all());
    cases.addAll(SlidingCases.all());
    cases.addAll(StreamJoinCases.all());
    cases.addAll(TableStepCases.all());
    cases.addAll(TableJoinCases.all());
    cases.addAll(ForeignCases.all());
    cases.addAll(TableGroupCases.all());

    Path directory = Path.of(args[0]);
    clear(directory);
    Set<Path> written = new HashSet<>();
    for (Case one : cases) {
      Path file = directory.resolve(one.operator.id()).resolve(one.name + ".jsonl");
      if (!written.add(file)) {
        throw new IllegalStateException("two cases are called " + file);
      }
      Files.createDirectories(file.getParent());
      Files.writeString(file, text(one));
    }
    Methods.write(directory.resolveSibling("methods.txt"));
    System.out.println(cases.size() + " cases");
  }

  private static String text(Case one) {
    Run run = Run.of(one, InMemoryDslStoreSuppliers.class, FOR_EVER);
    // What a store is made of and how long it keeps windows must not show.
    same(one, run.store, Run.of(one, RocksDBDslStoreSuppliers.class, FOR_EVER).store);
    // With the default retention, a jump of time removes windows before their final results are emitted, and sessions
    // leave the store before they are closed.
    if (!one.operator.isOnClose() && !one.operator.isSession() && !one.operator.isSliding()) {
      same(one, run.events, Run.of(one, InMemoryDslStoreSuppliers.class, null).events);
      same(one, run.events, Run.of(one, RocksDBDslStoreSuppliers.class, null).events);
    }

    StringBuilder text = new StringBuilder(Json.line(Map.of("case", head(one))));
    run.events.forEach(event -> text.append(Json.line(event)));
    run.store.forEach(entry -> text.append(Json.line(Map.of("store", entry))));
    return text.toString();
  }

  private static void same(Case one, Object expected, Object actual) {
    if (!expected.equals(actual)) {
      throw new IllegalStateException(
          one.operator + " " + one.name + " depends on the store:\n" + expected + "\n" + actual);
    }
  }

  private static Map<String, Object> head(Case one) {
    Map<String, Object> head =
        Run.map("operator", one.operator.id(), "name", one.name, "about", one.about);
    if (one.operator.isWindowed()) {
      head.put(one.operator.isSession() ? "gap_ms" : "size_ms", one.sizeMs);
      if (one.advanceMs > 0) {
        head.put("advance_ms", one.advanceMs);
      }
      head.put("grace_ms", one.graceMs);
    }
    if (one.operator.isStreamJoin()) {
      head.put("before_ms", one.beforeMs);
      head.put("after_ms", one.afterMs);
      head.put("grace_ms", one.graceMs);
    }
    if (one.negative != null) {
      head.put("negative_timestamps", one.negative.name().toLowerCase(Locale.ROOT));
    }
    if (one.arrival() != null) {
      head.put("arrival", one.arrival());
    }
    if (one.seed != null) {
      head.put("seed", one.seed);
    }
    return head;
  }

  /** Takes away the files of cases that may be no more. */
  private static void clear(Path directory) throws IOException {
    if (!Files.isDirectory(directory)) {
      return;
    }
    try (Stream<Path> files = Files.walk(directory)) {
      for (Path file : files.filter(path -> path.toString().endsWith(".jsonl")).toList()) {
        Files.delete(file);
      }
    }
  }
}
