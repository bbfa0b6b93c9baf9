package eos.golden;

import static eos.golden.Operator.SLIDING_AGGREGATE;
import static eos.golden.Operator.SLIDING_AGGREGATE_ON_CLOSE;

import java.util.ArrayList;
import java.util.List;

/** Sliding windows per key (KIP-450), with updates and on close. */
final class SlidingCases {
  private SlidingCases() {}

  private static Case sliding(String name, String about) {
    return new Case(SLIDING_AGGREGATE, name, about).windows(10_000, 5_000);
  }

  static List<Case> all() {
    List<Case> updates =
        List.of(
            sliding("in_order", "each record has a window before it, and one after an earlier record")
                .in("a", "1", 20_000)
                .in("a", "2", 25_000)
                .in("a", "3", 30_000)
                .in("a", "4", 36_000)
                .in("z", "5", 900_000),
            sliding("bounds", "both ends belong to a window")
                .in("a", "1", 20_000)
                .in("a", "2", 30_000)
                .in("a", "3", 40_001)
                .in("z", "4", 900_000),
            sliding("out_of_order", "an earlier record joins the windows around it")
                .in("a", "1", 30_000)
                .in("a", "2", 25_000)
                .in("a", "3", 28_000)
                .in("a", "4", 22_000)
                .in("a", "5", 35_000)
                .in("z", "6", 900_000),
            sliding("equal_times", "records of one time are in the same windows")
                .in("a", "1", 20_000)
                .in("a", "2", 20_000)
                .in("a", "3", 25_000)
                .in("a", "4", 25_000)
                .in("a", "5", 20_000)
                .in("z", "6", 900_000),
            sliding("early", "records before the length of a window share the first one")
                .in("a", "1", 0)
                .in("a", "2", 4_000)
                .in("a", "3", 9_999)
                .in("a", "4", 2_000)
                .in("a", "5", 10_000)
                .in("a", "6", 14_001)
                .in("z", "7", 900_000),
            sliding("early_backwards", "early records in the opposite order")
                .in("a", "1", 9_000)
                .in("a", "2", 5_000)
                .in("a", "3", 1_000)
                .in("a", "4", 7_000)
                .in("z", "5", 900_000),
            sliding("several_keys", "windows of keys are apart")
                .in("b", "1", 20_000)
                .in("a", "2", 22_000)
                .in("b", "3", 24_000)
                .in("a", "4", 40_000)
                .in("z", "5", 900_000),
            sliding("late", "closed windows take no record, and a record that opens none is dropped")
                .in("a", "1", 20_000)
                .in("a", "2", 36_000)
                .in("a", "3", 21_000)
                .in("a", "4", 30_000)
                .in("b", "5", 60_000)
                .in("a", "6", 44_999)
                .in("a", "7", 45_000)
                .in("a", "8", 46_000)
                .in("z", "9", 900_000),
            new Case(SLIDING_AGGREGATE, "no_grace", "without grace (KAFKA-13739)")
                .windows(10_000, 0)
                .in("a", "1", 20_000)
                .in("a", "2", 25_000)
                .in("a", "3", 22_000)
                .in("a", "4", 36_000)
                .in("a", "5", 26_000)
                .in("z", "6", 900_000),
            random("random_30", "in order of time", 30, 0),
            random("random_31", "out of order", 31, 9_000),
            random("random_32", "far out of order", 32, 30_000));
    List<Case> cases = new ArrayList<>(updates);
    updates.forEach(it -> cases.add(it.as(SLIDING_AGGREGATE_ON_CLOSE)));
    return cases;
  }

  private static Case random(String name, String about, long seed, int disorderMs) {
    Case all = Seeded.fill(sliding(name, about), seed, 80, disorderMs);
    // Windows without values are for a case of their own.
    all.inputs.removeIf(it -> it.key() == null || it.value() == null);
    return all.in("z", "x", all.latest() + 900_000);
  }
}
