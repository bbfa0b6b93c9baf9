package eos.golden;

import static eos.golden.Operator.JOIN;
import static eos.golden.Operator.LEFT_JOIN;

import java.util.ArrayList;
import java.util.List;

/** A stream joined with a table; every case once as a join, once as a left join. */
final class JoinCases {
  private JoinCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    cases.addAll(each(JOIN));
    cases.addAll(each(LEFT_JOIN));
    return cases;
  }

  private static List<Case> each(Operator join) {
    return List.of(
        new Case(join, "table_before",
            "the row is there; only the stream's records give results, with their timestamps")
            .table("a", "t1", 10)
            .stream("a", "s1", 20)
            .stream("a", "s2", 30),
        new Case(join, "table_after", "a row that comes later does not look back")
            .stream("a", "s1", 10)
            .table("a", "t1", 20)
            .stream("a", "s2", 30),
        new Case(join, "table_changes", "each record sees the row as it is when it arrives")
            .table("a", "t1", 10)
            .stream("a", "s1", 20)
            .table("a", "t2", 30)
            .stream("a", "s2", 40)
            .table("a", "t3", 50)
            .table("a", "t4", 60)
            .stream("a", "s3", 70),
        new Case(join, "tombstone", "a deleted row is no row")
            .table("a", "t1", 10)
            .stream("a", "s1", 20)
            .table("a", null, 30)
            .stream("a", "s2", 40)
            .table("a", "t2", 50)
            .stream("a", "s3", 60),
        new Case(join, "other_keys", "rows of other keys do not matter")
            .table("a", "t1", 10)
            .table("b", "t2", 11)
            .stream("b", "s1", 20)
            .stream("c", "s2", 30)
            .stream("a", "s3", 40),
        new Case(join, "empty_table", "a sibling without records: nothing to wait for")
            .stream("a", "s1", 10)
            .stream("b", "s2", 20)
            .stream("a", "s3", 30),
        new Case(join, "empty_stream", "the table alone gives no results")
            .table("a", "t1", 10)
            .table("a", null, 20)
            .table("b", "t2", 30),
        new Case(join, "equal_timestamps_table_first",
            "one time on both sides: the order of arrival decides, the row is there")
            .table("a", "t1", 10)
            .stream("a", "s1", 10)
            .table("a", "t2", 10)
            .stream("a", "s2", 10),
        new Case(join, "equal_timestamps_stream_first",
            "one time on both sides: the order of arrival decides, the row is not there yet")
            .stream("a", "s1", 10)
            .table("a", "t1", 10)
            .stream("a", "s2", 10),
        new Case(join, "row_from_the_future",
            "the row's timestamp is not asked: a record joins with a later row")
            .table("a", "t1", 100)
            .stream("a", "s1", 20)
            .stream("a", "s2", 100),
        new Case(join, "table_out_of_order",
            "an older update of the table wins, as it arrives last")
            .table("a", "new", 100)
            .stream("a", "s1", 110)
            .table("a", "old", 50)
            .stream("a", "s2", 120)
            .table("a", null, 40)
            .stream("a", "s3", 130),
        new Case(join, "stream_out_of_order",
            "results carry the record's own timestamp, in order of arrival")
            .table("a", "t1", 10)
            .stream("a", "s1", 50)
            .stream("a", "s2", 30)
            .stream("a", "s3", 50),
        new Case(join, "null_stream_key", "a record of the stream without key")
            .table("a", "t1", 10)
            .stream(null, "s1", 20)
            .stream("a", "s2", 30)
            .stream(null, null, 40),
        new Case(join, "null_stream_value", "a record of the stream without value")
            .table("a", "t1", 10)
            .stream("a", null, 20)
            .stream("b", null, 30)
            .stream("a", "s2", 40),
        new Case(join, "null_table_key", "a row without key is dropped")
            .table(null, "t1", 10)
            .stream("a", "s1", 20)
            .table("a", "t2", 30)
            .table(null, null, 40)
            .stream("a", "s2", 50),
        new Case(join, "null_result",
            "a joiner that returns null: the result is emitted, with a null value")
            .table("a", "t1", 10)
            .stream("a", "-", 20)
            .stream("b", "-", 30)
            .stream("a", "s1", 40),
        new Case(join, "empty_strings", "empty strings are values and keys")
            .table("", "", 10)
            .stream("", "", 20)
            .stream("a", "", 30),
        Seeded.fillJoin(new Case(join, "random_12", "in order of time"), 12, 80, 0),
        Seeded.fillJoin(new Case(join, "random_13", "out of order"), 13, 80, 3_000));
  }
}
