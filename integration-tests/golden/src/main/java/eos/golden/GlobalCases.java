package eos.golden;

import static eos.golden.Operator.GLOBAL_JOIN;
import static eos.golden.Operator.GLOBAL_LEFT_JOIN;

import java.util.ArrayList;
import java.util.List;

/**
 * A stream joined with a global table. The row's key is the part of the stream's value before the
 * "=". Each case is a join and a left join.
 */
final class GlobalCases {
  private GlobalCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator join : List.of(GLOBAL_JOIN, GLOBAL_LEFT_JOIN)) {
      cases.addAll(each(join));
    }
    return cases;
  }

  private static List<Case> each(Operator join) {
    return List.of(
        new Case(join, "row_before",
            "the row is there; only the stream's records give results, with their timestamps")
            .global("a", "g1", 10)
            .stream("k", "a=1", 20)
            .stream("k", "a=2", 30),
        new Case(join, "row_after", "a row that comes later does not look back")
            .stream("k", "a=1", 10)
            .global("a", "g1", 20)
            .stream("k", "a=2", 30),
        new Case(join, "row_changes", "each record sees the row as it is when it arrives")
            .global("a", "g1", 10)
            .stream("k", "a=1", 20)
            .global("a", "g2", 30)
            .stream("k", "a=2", 40)
            .global("a", "g3", 50)
            .global("a", "g4", 60)
            .stream("k", "a=3", 70),
        new Case(join, "tombstone", "a deleted row is no row")
            .global("a", "g1", 10)
            .stream("k", "a=1", 20)
            .global("a", null, 30)
            .stream("k", "a=2", 40)
            .global("b", null, 50)
            .stream("k", "b=3", 60)
            .global("a", "g2", 70)
            .stream("k", "a=4", 80),
        new Case(join, "selected_key",
            "the selected key finds the row, not the record's key: several keys meet one row, and one key several rows")
            .global("a", "g1", 10)
            .global("b", "g2", 11)
            .stream("k", "a=1", 20)
            .stream("l", "a=2", 30)
            .stream("a", "b=3", 40)
            .stream("b", "a=4", 50)
            .stream("k", "b=5", 60)
            .stream("k", "a", 70),
        new Case(join, "unknown_row", "rows of other keys do not matter, also where keys begin alike")
            .global("a", "g1", 10)
            .global("ab", "g2", 11)
            .stream("a", "b=1", 20)
            .stream("k", "abc=2", 30)
            .stream("k", "ab=3", 40)
            .stream("ab", "A=4", 50),
        new Case(join, "empty_table", "a table without rows: nothing to wait for")
            .stream("k", "a=1", 10)
            .stream("l", "b=2", 20),
        new Case(join, "empty_stream", "the table alone gives no results")
            .global("a", "g1", 10)
            .global("a", null, 20)
            .global("b", "g2", 30),
        new Case(join, "row_times",
            "the row's timestamp does not matter, earlier or later: the result has the record's own one")
            .global("a", "g1", 100)
            .stream("k", "a=1", 20)
            .stream("k", "a=2", 100)
            .stream("k", "a=3", 200)
            .global("a", "g2", 100)
            .stream("k", "a=4", 100)
            .stream("k", "a=5", 0),
        new Case(join, "rows_out_of_order", "an older update of the table wins, as it arrives last")
            .global("a", "new", 100)
            .stream("k", "a=1", 110)
            .global("a", "old", 50)
            .stream("k", "a=2", 120)
            .global("a", null, 40)
            .stream("k", "a=3", 130),
        new Case(join, "stream_out_of_order",
            "results carry the record's own timestamp, in order of arrival")
            .global("a", "g1", 10)
            .stream("k", "a=1", 50)
            .stream("k", "a=2", 30)
            .stream("k", "a=3", 50),
        new Case(join, "null_stream_key", "a record of the stream without key, with a row and without one")
            .global("a", "g1", 10)
            .stream(null, "a=1", 20)
            .stream(null, "b=2", 30)
            .stream("k", "a=3", 40),
        new Case(join, "null_stream_value", "a record of the stream without value, with a key and without one")
            .global("a", "g1", 10)
            .stream("a", null, 20)
            .stream("k", "a=1", 30)
            .stream(null, null, 40)
            .stream("k", "a=2", 50),
        new Case(join, "null_row_key", "a row without key is dropped")
            .global(null, "g1", 10)
            .stream("k", "a=1", 20)
            .global("a", "g2", 30)
            .global(null, null, 40)
            .stream("k", "a=2", 50),
        new Case(join, "null_selected_key",
            "a record that selects no row, with a key and without one, and there is a row of the empty key")
            .global("", "g1", 10)
            .global("k", "g2", 11)
            .stream("k", "=1", 20)
            .stream(null, "=2", 30)
            .stream("", "=3", 40)
            .stream("k", "k=4", 50),
        new Case(join, "empty_strings", "empty strings are values and keys; an empty row is a row")
            .global("a", "", 10)
            .stream("", "a=1", 20)
            .stream("", "a", 30)
            .stream("k", "", 40),
        Seeded.fillGlobalJoin(new Case(join, "random_70", "in order of time"), 70, 80, 0),
        Seeded.fillGlobalJoin(new Case(join, "random_71", "out of order"), 71, 80, 3_000));
  }
}
