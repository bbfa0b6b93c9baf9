package eos.golden;

import static eos.golden.Operator.HOPPING_AGGREGATE;
import static eos.golden.Operator.HOPPING_AGGREGATE_ON_CLOSE;
import static eos.golden.Operator.HOPPING_COUNT;
import static eos.golden.Operator.HOPPING_REDUCE;

import java.util.List;

/** Windows that overlap, with grace, per key. */
final class HoppingCases {
  private HoppingCases() {}

  private static Case count(String name, String about) {
    return new Case(HOPPING_COUNT, name, about).hopping(10_000, 5_000, 5_000);
  }

  private static Case aggregate(String name, String about) {
    return new Case(HOPPING_AGGREGATE, name, about).hopping(10_000, 5_000, 5_000);
  }

  static List<Case> all() {
    return List.of(
        count("bounds", "a window holds its start and not its end")
            .in("a", "x", 0)
            .in("a", "x", 4_999)
            .in("a", "x", 5_000)
            .in("a", "x", 9_999)
            .in("a", "x", 10_000)
            .in("a", "x", 20_000),
        count("first_windows", "no window starts before 1970")
            .in("a", "x", 1)
            .in("a", "x", 7_000)
            .in("a", "x", 12_000),
        count("several_keys", "windows of keys are apart; updates are in the order of their starts")
            .in("a", "x", 11_000)
            .in("b", "x", 12_000)
            .in("a", "x", 13_000)
            .in("b", "x", 17_000),
        count("partly_late", "a record updates those of its windows that are open")
            .in("a", "x", 12_000)
            .in("a", "x", 24_000)
            .in("a", "x", 12_500)
            .in("a", "x", 26_000)
            .in("a", "x", 12_700),
        count("late", "a record whose windows are all closed is dropped")
            .in("a", "x", 12_000)
            .in("a", "x", 60_000)
            .in("a", "x", 12_500)
            .in("b", "x", 44_000)
            .in("b", "x", 46_000),
        count("out_of_order", "the timestamp of a result is the highest of its window")
            .in("a", "x", 13_000)
            .in("a", "x", 11_000)
            .in("a", "x", 16_000)
            .in("a", "x", 12_000),
        count("null_value", "a windowed count counts a record without value")
            .in("a", null, 13_000)
            .in("a", "x", 14_000),
        new Case(HOPPING_COUNT, "no_grace", "without grace stream time at the end closes")
            .hopping(10_000, 2_500, 0)
            .in("a", "x", 11_000)
            .in("a", "x", 15_000)
            .in("a", "x", 11_500)
            .in("a", "x", 20_000)
            .in("a", "x", 12_400),
        new Case(HOPPING_COUNT, "uneven", "a distance that does not divide the length")
            .hopping(10_000, 3_000, 1_000)
            .in("a", "x", 9_000)
            .in("a", "x", 9_999)
            .in("a", "x", 12_000)
            .in("a", "x", 11_999)
            .in("a", "x", 19_000),
        new Case(HOPPING_COUNT, "every_millisecond", "the smallest distance")
            .hopping(4, 1, 2)
            .in("a", "x", 0)
            .in("a", "x", 3)
            .in("a", "x", 2)
            .in("a", "x", 9)
            .in("a", "x", 5),
        new Case(HOPPING_COUNT, "without_overlap", "a distance that is the length")
            .hopping(10_000, 10_000, 0)
            .in("a", "x", 9_999)
            .in("a", "x", 10_000)
            .in("a", "x", 5_000),
        aggregate("order", "the initializer once per window, then values in order of arrival")
            .in("a", "1", 11_000)
            .in("a", "2", 16_000)
            .in("a", "3", 12_000)
            .in("b", "4", 17_000)
            .in("a", "5", 21_000),
        new Case(HOPPING_REDUCE, "order", "the first value of a window is its result")
            .hopping(10_000, 5_000, 5_000)
            .in("a", "1", 11_000)
            .in("a", "2", 16_000)
            .in("a", "3", 12_000)
            .in("b", "4", 17_000)
            .in("a", "5", 26_000)
            .in("a", "6", 12_500)
            .in("a", "7", 13_000),
        new Case(HOPPING_AGGREGATE_ON_CLOSE, "order", "each result once, with all values in order of arrival")
            .hopping(10_000, 5_000, 5_000)
            .in("a", "1", 11_000)
            .in("a", "2", 16_000)
            .in("b", "3", 12_000)
            .in("a", "4", 12_500)
            .in("b", "5", 26_000)
            .in("a", "6", 12_700)
            .in("z", "7", 90_000),
        aggregate("null_result", "null deletes the result of each open window")
            .in("a", "1", 11_000)
            .in("a", "-", 12_000)
            .in("a", "2", 13_000)
            .in("a", "3", 24_000)
            .in("a", "-", 12_500)
            .in("a", "4", 13_500),
        aggregate("far_future", "one record from the year 9999 closes every window before it")
            .in("a", "1", 11_000)
            .in("a", "2", 253_370_764_800_000L)
            .in("a", "3", 12_000));
  }
}
