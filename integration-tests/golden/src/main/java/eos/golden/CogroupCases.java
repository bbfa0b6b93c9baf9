package eos.golden;

import static eos.golden.Operator.COGROUP;
import static eos.golden.Operator.COGROUP_TWICE;

import java.util.List;

/** cogroup: two streams of different types, one result. */
final class CogroupCases {
  private CogroupCases() {}

  static List<Case> all() {
    return List.of(
        new Case(COGROUP, "both", "each stream adds to the result of the other")
            .in("a", "x", 10)
            .more("a", "four", 20)
            .in("b", "y", 30)
            .more("a", "", 40)
            .in("a", "z", 50),
        new Case(COGROUP, "one_alone", "either stream begins a result")
            .more("a", "1", 10)
            .more("a", "22", 20)
            .in("b", "x", 30),
        new Case(COGROUP, "out_of_order",
            "a result's timestamp is the highest of both streams so far")
            .in("a", "x", 100)
            .more("a", "1", 50)
            .in("a", "y", 40)
            .more("a", "22", 120)
            .in("a", "z", 110),
        new Case(COGROUP, "equal_timestamps", "at equal timestamps the order of arrival")
            .in("a", "x", 5)
            .more("a", "1", 5)
            .in("a", "y", 5),
        new Case(COGROUP, "null_result",
            "an aggregator that returns null deletes; the next record of any stream begins anew")
            .in("a", "x", 10)
            .more("a", "1", 20)
            .in("a", "-", 30)
            .more("a", "22", 40)
            .in("a", "y", 50),
        new Case(COGROUP, "null_result_at_first", "a deletion of nothing is an update, too")
            .in("a", "-", 10)
            .more("a", "1", 20),
        new Case(COGROUP, "null_result_out_of_order",
            "the time of a deleted result is gone with it")
            .more("a", "1", 100)
            .in("a", "-", 50)
            .more("a", "22", 20),
        new Case(COGROUP, "null_key", "a record without key, of either stream")
            .in("a", "x", 10)
            .in(null, "y", 20)
            .more(null, "1", 30)
            .more("a", "22", 40),
        new Case(COGROUP, "null_value", "a record without value, of either stream")
            .in("a", null, 10)
            .more("a", "1", 20)
            .more("a", null, 30)
            .in("a", "x", 40),
        Seeded.fillCogroup(new Case(COGROUP, "random_30", "in order of time"), 30, 60, 0),
        Seeded.fillCogroup(new Case(COGROUP, "random_31", "out of order"), 31, 60, 3_000),
        new Case(COGROUP_TWICE, "twice",
            "the second aggregator of a grouped stream replaces the first")
            .in("a", "x", 10)
            .in("a", "y", 20)
            .in("b", "z", 30));
  }
}
