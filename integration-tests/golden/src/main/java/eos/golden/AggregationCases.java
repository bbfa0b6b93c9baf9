package eos.golden;

import static eos.golden.Operator.AGGREGATE;
import static eos.golden.Operator.COUNT;
import static eos.golden.Operator.REDUCE_CONCAT;
import static eos.golden.Operator.REDUCE_SUM;

import eos.golden.Case.Negative;
import java.util.List;

/** count, reduce and aggregate on group_by_key. */
final class AggregationCases {
  private AggregationCases() {}

  static List<Case> all() {
    return List.of(
        new Case(COUNT, "one_key", "each record of the key counts one more")
            .in("a", "x", 10)
            .in("a", "y", 20)
            .in("a", "x", 30),
        new Case(COUNT, "several_keys", "keys are counted apart")
            .in("a", "x", 10)
            .in("b", "x", 11)
            .in("a", "x", 12)
            .in("c", "x", 13)
            .in("b", "x", 14)
            .in("a", "x", 15),
        new Case(COUNT, "out_of_order", "a result's timestamp is the highest of the key so far")
            .in("a", "x", 100)
            .in("a", "x", 50)
            .in("b", "x", 10)
            .in("a", "x", 100)
            .in("a", "x", 99)
            .in("b", "x", 5)
            .in("a", "x", 101),
        new Case(COUNT, "equal_timestamps", "records at the same time count, in order of arrival")
            .in("a", "x", 7)
            .in("a", "y", 7)
            .in("b", "x", 7)
            .in("a", "z", 7),
        new Case(COUNT, "timestamp_zero", "the first millisecond is a time like any other")
            .in("a", "x", 0)
            .in("a", "x", 0)
            .in("a", "x", 1),
        new Case(COUNT, "null_value",
            "a record without value is dropped: no result, no trace in the store")
            .in("a", null, 10)
            .in("a", "x", 20)
            .in("a", null, 90)
            .in("a", "y", 30),
        new Case(COUNT, "null_key", "a record without key is dropped")
            .in(null, "x", 10)
            .in("a", "x", 20)
            .in(null, null, 30)
            .in("a", "x", 40),
        new Case(COUNT, "empty_strings",
            "an empty key and an empty value are there; they are not null")
            .in("", "", 10)
            .in("", "x", 20)
            .in("a", "", 30)
            .in("", null, 40),
        new Case(COUNT, "unicode_keys", "keys are compared byte by byte; nothing is normalized")
            .in("é", "x", 10)
            .in("e\u0301", "x", 20)
            .in("é", "x", 30)
            .in("É", "x", 40)
            .in("日本", "x", 50),
        new Case(COUNT, "now", "timestamps of this decade")
            .in("a", "x", 1_795_219_200_000L)
            .in("a", "x", 1_795_219_200_001L)
            .in("a", "x", 1_795_132_800_000L),
        new Case(COUNT, "negative_fails", "by default a negative timestamp ends the application")
            .negative(Negative.FAIL)
            .in("a", "x", 10)
            .in("a", "x", -1),
        new Case(COUNT, "negative_skipped", "LogAndSkipOnInvalidTimestamp: it is dropped")
            .negative(Negative.SKIP)
            .in("a", "x", 10)
            .in("a", "x", -1)
            .in("a", "x", -1000)
            .in("a", "x", 20),
        new Case(COUNT, "negative_gets_partition_time",
            "UsePartitionTimeOnInvalidTimestamp: it takes the highest of its partition so far")
            .negative(Negative.PARTITION_TIME)
            .in("a", "x", 50)
            .in("b", "x", 10)
            .in("b", "x", -1),
        Seeded.fill(
            new Case(COUNT, "random_1", "few keys, out of order, some null values"),
            1, 60, 3_000),
        Seeded.fill(new Case(COUNT, "random_2", "in order of time, some null values"), 2, 60, 0),
        // Reduce.
        new Case(REDUCE_SUM, "first_value",
            "the first value is the result; the reducer is not asked")
            .in("a", 5L, 10)
            .in("a", 7L, 20)
            .in("b", -3L, 30)
            .in("a", 0L, 40),
        new Case(REDUCE_SUM, "out_of_order",
            "order of arrival is what counts; the timestamp never falls")
            .in("a", 1L, 100)
            .in("a", 2L, 40)
            .in("a", 4L, 100)
            .in("a", 8L, 120),
        new Case(REDUCE_SUM, "back_to_zero", "a sum of zero is a result; it does not delete")
            .in("a", 5L, 10)
            .in("a", -5L, 20)
            .in("a", 1L, 30),
        new Case(REDUCE_SUM, "overflow", "Java's long wraps around")
            .in("a", Long.MAX_VALUE, 10)
            .in("a", 1L, 20),
        new Case(REDUCE_SUM, "null_value", "a record without value does not reach the reducer")
            .in("a", null, 10)
            .in("a", 5L, 20)
            .in("a", null, 90)
            .in("a", 6L, 30),
        Seeded.fill(
            new Case(REDUCE_SUM, "random_3", "few keys, out of order, some null values"),
            3, 60, 3_000),
        // Reduce, in an order that shows.
        new Case(REDUCE_CONCAT, "order", "(old, new) in order of arrival, whatever the timestamps")
            .in("a", "3", 30)
            .in("a", "1", 10)
            .in("a", "2", 20)
            .in("b", "1", 10),
        new Case(REDUCE_CONCAT, "equal_timestamps", "at equal timestamps the order of arrival")
            .in("a", "x", 5)
            .in("a", "y", 5)
            .in("a", "z", 5),
        new Case(REDUCE_CONCAT, "null_result",
            "a reducer that returns null deletes the key; the next record is a first one")
            .in("a", "x", 10)
            .in("a", "y", 20)
            .in("a", "-", 30)
            .in("a", "z", 40)
            .in("a", "w", 50),
        new Case(
                REDUCE_CONCAT,
                "null_result_out_of_order",
                "a deletion has the highest timestamp so far, and forgets it")
            .in("a", "x", 100)
            .in("a", "-", 30)
            .in("a", "z", 40)
            .in("a", "w", 20),
        new Case(REDUCE_CONCAT, "delete_at_first",
            "the first value is stored as it is: the reducer could not delete it")
            .in("a", "-", 10)
            .in("a", "x", 20)
            .in("a", "-", 30)
            .in("a", "-", 40),
        new Case(REDUCE_CONCAT, "null_and_empty",
            "null values and keys are dropped, empty ones are not")
            .in("a", "", 10)
            .in("a", null, 20)
            .in("", "x", 30)
            .in("a", "", 40)
            .in(null, "x", 50)
            .in("", "", 60),
        Seeded.fill(
            new Case(REDUCE_CONCAT, "random_4", "few keys, out of order, some null values"),
            4, 60, 3_000),
        // Aggregate.
        new Case(AGGREGATE, "order", "the initializer, then every value in order of arrival")
            .in("a", "1", 10)
            .in("a", "2", 20)
            .in("b", "1", 15)
            .in("a", "3", 30),
        new Case(AGGREGATE, "out_of_order", "a result's timestamp is the highest of the key so far")
            .in("a", "3", 30)
            .in("a", "1", 10)
            .in("b", "1", 5)
            .in("a", "2", 30)
            .in("a", "4", 31),
        new Case(AGGREGATE, "equal_timestamps", "at equal timestamps the order of arrival")
            .in("a", "1", 5)
            .in("b", "1", 5)
            .in("a", "2", 5)
            .in("a", "3", 5),
        new Case(AGGREGATE, "null_result",
            "an aggregator that returns null deletes the key; the next record starts again")
            .in("a", "1", 10)
            .in("a", "-", 20)
            .in("a", "2", 30)
            .in("a", "3", 40),
        new Case(AGGREGATE, "null_result_at_first",
            "the deletion of a key that is not there is a result, too")
            .in("a", "-", 10)
            .in("a", "-", 20)
            .in("a", "1", 30),
        new Case(AGGREGATE, "null_result_out_of_order",
            "a deletion has the highest timestamp so far, and forgets it")
            .in("a", "1", 100)
            .in("a", "-", 30)
            .in("a", "2", 40)
            .in("a", "3", 20),
        new Case(AGGREGATE, "null_value", "a record without value is dropped")
            .in("a", null, 10)
            .in("a", "1", 20)
            .in("a", null, 90)
            .in("a", "2", 30),
        new Case(AGGREGATE, "null_key", "a record without key is dropped")
            .in(null, "1", 10)
            .in("a", "1", 20)
            .in(null, null, 30),
        new Case(AGGREGATE, "timestamp_zero", "the first millisecond is a time like any other")
            .in("a", "1", 0)
            .in("a", "2", 0),
        Seeded.fill(
            new Case(AGGREGATE, "random_5", "few keys, out of order, some null values"),
            5, 60, 3_000),
        Seeded.fill(
            new Case(AGGREGATE, "random_6", "in order of time, some null values"),
            6, 60, 0));
  }
}
