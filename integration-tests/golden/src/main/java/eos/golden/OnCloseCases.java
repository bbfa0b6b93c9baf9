package eos.golden;

import static eos.golden.Operator.HOPPING_COUNT;
import static eos.golden.Operator.HOPPING_COUNT_ON_CLOSE;
import static eos.golden.Operator.LONGER_ON_CLOSE;
import static eos.golden.Operator.WINDOW_COUNT;
import static eos.golden.Operator.WINDOW_COUNT_ON_CLOSE;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** The cases of windows, with final results only. */
final class OnCloseCases {
  private OnCloseCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    Stream.concat(WindowCases.all().stream(), HoppingCases.all().stream())
        .filter(it -> it.operator == WINDOW_COUNT || it.operator == HOPPING_COUNT)
        .filter(it -> it.negative == null)
        .forEach(
            it ->
                cases.add(
                    it.as(
                            it.operator == WINDOW_COUNT
                                ? WINDOW_COUNT_ON_CLOSE
                                : HOPPING_COUNT_ON_CLOSE)
                        .in("z", "x", it.latest() + 60_000)));
    cases.add(
        new Case(LONGER_ON_CLOSE, "gap", "the last short window before a gap counts in its long one")
            .windows(10_000, 0)
            .in("a", "x", 5_000)
            .in("a", "x", 95_000)
            .in("b", "x", 99_000)
            .in("a", "x", 195_000)
            .in("a", "x", 2_000_000)
            .in("a", "x", 2_000_001)
            .in("a", "x", 3_000_000)
            .in("a", "x", 4_000_000)
            .in("a", "x", 5_000_000));
    return cases;
  }
}
