package eos.golden;

import static eos.golden.Operator.TABLE;

import java.util.List;

/** A topic read as a table. */
final class TableCases {
  private TableCases() {}

  static List<Case> all() {
    return List.of(
        new Case(TABLE, "updates", "the last value of a key stands")
            .table("a", "1", 10)
            .table("b", "1", 20)
            .table("a", "2", 30),
        new Case(TABLE, "same_value_again", "an update that changes nothing is emitted, too")
            .table("a", "1", 10)
            .table("a", "1", 10)
            .table("a", "1", 20),
        new Case(TABLE, "tombstone", "a null value deletes the row and is emitted")
            .table("a", "1", 10)
            .table("a", null, 20)
            .table("b", "1", 30),
        new Case(TABLE, "tombstone_of_nothing", "so is a tombstone of a row that is not there")
            .table("a", null, 10)
            .table("a", null, 20),
        new Case(TABLE, "reinsert", "a deleted row comes back")
            .table("a", "1", 10)
            .table("a", null, 20)
            .table("a", "2", 30)
            .table("a", null, 40)
            .table("a", "3", 50),
        new Case(TABLE, "out_of_order",
            "the last to arrive wins, with its own timestamp, even an older one")
            .table("a", "new", 100)
            .table("a", "old", 50)
            .table("b", "1", 10)
            .table("a", "newer", 70),
        new Case(TABLE, "tombstone_out_of_order",
            "an older tombstone deletes; after it an older value is welcome")
            .table("a", "1", 100)
            .table("a", null, 50)
            .table("a", "2", 20)
            .table("a", "3", 10),
        new Case(TABLE, "equal_timestamps", "at equal timestamps the last to arrive wins")
            .table("a", "1", 10)
            .table("a", "2", 10)
            .table("a", null, 10)
            .table("a", "3", 10),
        new Case(TABLE, "null_key", "a record without key is dropped")
            .table(null, "1", 10)
            .table("a", "1", 20)
            .table(null, null, 30),
        new Case(TABLE, "empty_strings", "an empty value is a value, an empty key a key")
            .table("", "1", 10)
            .table("a", "", 20)
            .table("", "", 30)
            .table("", null, 40),
        new Case(TABLE, "timestamp_zero", "the first millisecond is a time like any other")
            .table("a", "1", 0)
            .table("a", null, 0)
            .table("a", "2", 0),
        Seeded.fillTable(
            new Case(TABLE, "random_10", "out of order, one in four a tombstone"),
            10, 60, 3_000),
        Seeded.fillTable(
            new Case(TABLE, "random_11", "in order of time, one in four a tombstone"),
            11, 60, 0));
  }
}
