package eos.golden;

import static eos.golden.Operator.SESSION_AGGREGATE;
import static eos.golden.Operator.SESSION_AGGREGATE_ON_CLOSE;
import static eos.golden.Operator.SESSION_COUNT;
import static eos.golden.Operator.SESSION_COUNT_ON_CLOSE;
import static eos.golden.Operator.SESSION_REDUCE;

import java.util.ArrayList;
import java.util.List;

/** Sessions per key, with updates and on close. */
final class SessionCases {
  private SessionCases() {}

  private static Case count(String name, String about) {
    return new Case(SESSION_COUNT, name, about).windows(10_000, 5_000);
  }

  static List<Case> all() {
    List<Case> counts =
        List.of(
            count("gap", "a record at the gap belongs to the session, one behind it does not")
                .in("a", "x", 10_000)
                .in("a", "x", 20_000)
                .in("a", "x", 30_001)
                .in("z", "x", 90_000),
            count("before", "a record before a session makes it longer at its start")
                .in("a", "x", 20_000)
                .in("a", "x", 10_000)
                .in("a", "x", 12_000)
                .in("z", "x", 90_000),
            count("joined", "a record between two sessions joins them")
                .in("a", "x", 10_000)
                .in("a", "x", 21_000)
                .in("a", "x", 15_000)
                .in("a", "x", 16_000)
                .in("z", "x", 90_000),
            count("several_keys", "sessions of keys are apart")
                .in("b", "x", 10_000)
                .in("a", "x", 12_000)
                .in("b", "x", 19_000)
                .in("a", "x", 40_000)
                .in("b", "x", 41_000)
                .in("z", "x", 90_000),
            count("last_moment", "a session is open until gap and grace are over (KAFKA-12718)")
                .in("a", "x", 10_000)
                .in("b", "x", 25_000)
                .in("a", "x", 10_000)
                .in("b", "x", 25_001)
                .in("a", "x", 10_000)
                .in("z", "x", 90_000),
            count("late", "a record whose session is closed is dropped")
                .in("a", "x", 10_000)
                .in("b", "x", 60_000)
                .in("a", "x", 11_000)
                .in("c", "x", 44_999)
                .in("c", "x", 45_000)
                .in("z", "x", 90_000),
            count("late_but_joined", "a late record that joins an open session is not late")
                .in("a", "x", 46_000)
                .in("b", "x", 60_000)
                .in("a", "x", 37_000)
                .in("a", "x", 28_000)
                .in("z", "x", 90_000),
            count("null_value", "a session counts a record without value")
                .in("a", null, 10_000)
                .in("a", "x", 11_000)
                .in("z", "x", 90_000),
            count("equal_times", "records of one time are one session")
                .in("a", "x", 10_000)
                .in("a", "x", 10_000)
                .in("b", "x", 10_000)
                .in("z", "x", 90_000),
            count("same_end", "sessions that close at one time, in the order of their keys")
                .in("b", "x", 10_000)
                .in("a", "x", 10_000)
                .in("ab", "x", 5_000)
                .in("ab", "x", 10_000)
                .in("z", "x", 90_000),
            Seeded.fill(count("random_20", "in order of time"), 20, 80, 0),
            Seeded.fill(count("random_21", "out of order"), 21, 80, 9_000));
    List<Case> cases = new ArrayList<>(counts);
    counts.forEach(it -> cases.add(it.as(SESSION_COUNT_ON_CLOSE)));
    cases.add(
        new Case(SESSION_AGGREGATE, "order", "results are merged in the order of their times")
            .windows(10_000, 5_000)
            .in("a", "1", 30_000)
            .in("a", "2", 10_000)
            .in("a", "3", 20_000)
            .in("a", "4", 15_000)
            .in("b", "5", 16_000)
            .in("z", "6", 90_000));
    for (Operator operator : List.of(SESSION_AGGREGATE, SESSION_AGGREGATE_ON_CLOSE, SESSION_REDUCE)) {
      cases.add(
          new Case(operator, "joined", "a record between two sessions joins their results")
              .windows(10_000, 20_000)
              .in("a", "1", 30_000)
              .in("a", "2", 10_000)
              .in("a", "3", 20_000)
              .in("b", "4", 16_000)
              .in("a", "5", 41_000)
              .in("a", "6", 36_000)
              .in("z", "7", 190_000));
    }
    return cases;
  }
}
