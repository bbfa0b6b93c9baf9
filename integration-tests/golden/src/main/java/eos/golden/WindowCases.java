package eos.golden;

import static eos.golden.Operator.FILTER_WINDOW_COUNT;
import static eos.golden.Operator.WINDOW_AGGREGATE;
import static eos.golden.Operator.WINDOW_COUNT;

import eos.golden.Case.Negative;
import java.util.List;

/** Tumbling windows with grace, per key. */
final class WindowCases {
  private WindowCases() {}

  private static Case count(String name, String about) {
    return new Case(WINDOW_COUNT, name, about).windows(10_000, 5_000);
  }

  private static Case aggregate(String name, String about) {
    return new Case(WINDOW_AGGREGATE, name, about).windows(10_000, 5_000);
  }

  static List<Case> all() {
    return List.of(
        count("bounds", "a window holds its start and not its end")
            .in("a", "x", 0)
            .in("a", "x", 9_999)
            .in("a", "x", 10_000)
            .in("a", "x", 19_999)
            .in("a", "x", 20_000),
        count("aligned_to_the_epoch",
            "windows start at multiples of their length, not at the first record")
            .in("a", "x", 12_345)
            .in("b", "x", 15_000)
            .in("a", "x", 19_000),
        count("several_keys", "windows of keys are apart")
            .in("a", "x", 1_000)
            .in("b", "x", 2_000)
            .in("a", "x", 3_000)
            .in("b", "x", 12_000)
            .in("c", "x", 13_000)
            .in("a", "x", 14_000),
        count("out_of_order_in_window", "the timestamp of a result is the highest of its window")
            .in("a", "x", 5_000)
            .in("a", "x", 2_000)
            .in("a", "x", 7_000)
            .in("a", "x", 1_000),
        count("late_within_grace",
            "an earlier window takes records until its end and grace have passed")
            .in("a", "x", 5_000)
            .in("a", "x", 12_000)
            .in("a", "x", 6_000)
            .in("a", "x", 4_000)
            .in("a", "x", 13_000),
        count("closes_at_end_plus_grace",
            "stream time at end + grace closes: one millisecond before it does not")
            .in("a", "x", 5_000)
            .in("a", "x", 14_999)
            .in("a", "x", 9_999)
            .in("a", "x", 15_000)
            .in("a", "x", 9_999)
            .in("a", "x", 10_000),
        count("late_beyond_grace",
            "a record of a closed window is dropped; stream time does not go back")
            .in("a", "x", 5_000)
            .in("a", "x", 40_000)
            .in("a", "x", 6_000)
            .in("a", "x", 29_999)
            .in("a", "x", 30_000)
            .in("a", "x", 41_000),
        count("late_first_of_its_window",
            "within grace a window may open late; beyond it never opens")
            .in("a", "x", 21_000)
            .in("a", "x", 12_000)
            .in("a", "x", 2_000)
            .in("b", "x", 12_000)
            .in("b", "x", 2_000),
        count("stream_time_of_other_keys",
            "stream time is the partition's: another key's record closes windows")
            .in("a", "x", 5_000)
            .in("b", "x", 15_000)
            .in("a", "x", 6_000)
            .in("c", "x", 1_000)
            .in("a", "x", 16_000),
        count("null_key", "a record without key is dropped; it does not move stream time")
            .in("a", "x", 5_000)
            .in(null, "x", 50_000)
            .in("a", "x", 6_000),
        count("null_value",
            "a windowed count counts a record without value, which moves stream time")
            .in("a", "x", 5_000)
            .in("a", null, 50_000)
            .in("a", "x", 6_000)
            .in("a", null, 7_000),
        count("late_does_not_move_stream_time", "a dropped record changes nothing")
            .in("a", "x", 30_000)
            .in("a", "x", 10_000)
            .in("a", "x", 20_000)
            .in("a", "x", 31_000),
        count("equal_timestamps", "records at the same time count, in order of arrival")
            .in("a", "x", 5_000)
            .in("b", "x", 5_000)
            .in("a", "x", 5_000)
            .in("a", "x", 10_000)
            .in("b", "x", 10_000)
            .in("a", "x", 10_000),
        count("gap", "windows without records are not emitted")
            .in("a", "x", 1_000)
            .in("a", "x", 95_000)
            .in("a", "x", 1_000_000),
        count("far_future", "one record from the year 9999 closes every window before it")
            .in("a", "x", 1_795_219_200_000L)
            .in("a", "x", 253_402_300_799_999L)
            .in("a", "x", 1_795_219_201_000L)
            .in("b", "x", 1_795_219_202_000L)
            .in("b", "x", 253_402_300_799_998L),
        count("now", "timestamps of this decade")
            .in("a", "x", 1_795_219_204_321L)
            .in("a", "x", 1_795_219_209_999L)
            .in("a", "x", 1_795_219_210_000L)
            .in("a", "x", 1_795_219_203_000L),
        new Case(WINDOW_COUNT, "no_grace", "without grace stream time at the end closes")
            .windows(10_000, 0)
            .in("a", "x", 5_000)
            .in("a", "x", 9_999)
            .in("a", "x", 4_000)
            .in("a", "x", 10_000)
            .in("a", "x", 9_999)
            .in("a", "x", 10_001),
        new Case(WINDOW_COUNT, "long_grace", "a grace longer than the window keeps several open")
            .windows(1_000, 10_000)
            .in("a", "x", 500)
            .in("a", "x", 8_500)
            .in("a", "x", 600)
            .in("a", "x", 10_999)
            .in("a", "x", 700)
            .in("a", "x", 11_000)
            .in("a", "x", 800)
            .in("a", "x", 1_000),
        new Case(WINDOW_COUNT, "one_millisecond", "the smallest window")
            .windows(1, 1)
            .in("a", "x", 0)
            .in("a", "x", 1)
            .in("a", "x", 0)
            .in("a", "x", 2)
            .in("a", "x", 1)
            .in("a", "x", 2),
        new Case(WINDOW_COUNT, "odd_length", "a length that divides nothing: still multiples of it")
            .windows(7_001, 3)
            .in("a", "x", 7_000)
            .in("a", "x", 7_001)
            .in("a", "x", 7_003)
            .in("a", "x", 7_000)
            .in("a", "x", 7_004)
            .in("a", "x", 7_000)
            .in("a", "x", 14_002),
        count("negative_skipped", "LogAndSkipOnInvalidTimestamp: dropped before the windows")
            .negative(Negative.SKIP)
            .in("a", "x", -1)
            .in("a", "x", 0)
            .in("a", "x", -10_000)
            .in("a", "x", 1),
        count("negative_fails", "by default a negative timestamp ends the application")
            .negative(Negative.FAIL)
            .in("a", "x", 0)
            .in("a", "x", -1),
        Seeded.fill(
            count("random_14", "out of order by up to 8 s: little is late"),
            14, 120, 8_000),
        Seeded.fill(
            count("random_15", "out of order by up to 30 s: much is late"),
            15, 120, 30_000),
        Seeded.fill(
            new Case(WINDOW_COUNT, "random_16", "no grace, out of order by up to 3 s")
                .windows(5_000, 0),
            16,
            120,
            3_000),
        // Behind a filter.
        new Case(FILTER_WINDOW_COUNT, "stream_time_behind_a_filter",
            "a record that a filter drops does not move the stream time of the windows after it")
            .windows(10_000, 5_000)
            .in("a", "x", 5_000)
            .in("a", "drop", 50_000)
            .in("a", "x", 6_000)
            .in("a", "x", 15_000)
            .in("a", "x", 7_000),
        // Aggregate.
        aggregate("order", "the initializer once per window, then values in order of arrival")
            .in("a", "1", 1_000)
            .in("a", "2", 2_000)
            .in("a", "3", 11_000)
            .in("b", "1", 12_000)
            .in("a", "4", 12_000),
        aggregate("out_of_order", "order of arrival, highest timestamp of the window")
            .in("a", "1", 8_000)
            .in("a", "2", 3_000)
            .in("a", "3", 12_000)
            .in("a", "4", 9_000)
            .in("a", "5", 11_000),
        aggregate("late_beyond_grace", "a late value is in no window")
            .in("a", "1", 5_000)
            .in("a", "2", 14_999)
            .in("a", "3", 6_000)
            .in("b", "4", 15_000)
            .in("a", "5", 7_000)
            .in("a", "6", 16_000),
        aggregate("bounds", "a window holds its start and not its end")
            .in("a", "1", 9_999)
            .in("a", "2", 10_000)
            .in("a", "3", 0)
            .in("a", "4", 19_999),
        aggregate("equal_timestamps", "at equal timestamps the order of arrival")
            .in("a", "1", 5_000)
            .in("a", "2", 5_000)
            .in("b", "3", 5_000)
            .in("a", "4", 5_000),
        aggregate("null_result",
            "an aggregator that returns null deletes the window; the next record starts again")
            .in("a", "1", 8_000)
            .in("a", "-", 3_000)
            .in("a", "2", 4_000)
            .in("a", "3", 2_000)
            .in("a", "-", 11_000),
        aggregate("null_value", "the aggregator is given a record without value: null")
            .in("a", "1", 5_000)
            .in("a", null, 7_000)
            .in("b", null, 50_000)
            .in("a", "2", 6_000),
        aggregate("timestamp_zero", "the first millisecond is in the first window")
            .in("a", "1", 0)
            .in("a", "2", 0)
            .in("b", "1", 1),
        Seeded.fill(
            aggregate("random_17", "out of order by up to 8 s: little is late"),
            17, 120, 8_000),
        Seeded.fill(
            aggregate("random_18", "out of order by up to 30 s: much is late"),
            18, 120, 30_000));
  }
}
