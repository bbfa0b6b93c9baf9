package eos.golden;

import static eos.golden.Operator.GROUP_BY_COUNT;
import static eos.golden.Operator.WORD_COUNT;

import java.util.List;

/** count after a new key, by way of a repartition topic. */
final class GroupByCases {
  private GroupByCases() {}

  static List<Case> all() {
    return List.of(
        new Case(GROUP_BY_COUNT, "new_key", "counted by the new key, whatever the old one was")
            .in("a", "x1", 10)
            .in("b", "x2", 20)
            .in("a", "y1", 30)
            .in("c", "x3", 40),
        new Case(GROUP_BY_COUNT, "key_changes",
            "a key that moves to another group takes nothing from its old one: no table")
            .in("a", "x", 10)
            .in("a", "y", 20)
            .in("a", "x", 30),
        new Case(GROUP_BY_COUNT, "out_of_order", "timestamps pass the repartition topic unchanged")
            .in("a", "x", 100)
            .in("b", "x", 50)
            .in("a", "y", 40)
            .in("a", "x", 101)
            .in("b", "y", 30),
        new Case(GROUP_BY_COUNT, "equal_timestamps", "at equal timestamps the order of arrival")
            .in("a", "x", 5)
            .in("b", "y", 5)
            .in("c", "x", 5),
        new Case(GROUP_BY_COUNT, "null_old_key",
            "a record without key counts: its new key is there")
            .in(null, "x", 10)
            .in("a", "x", 20)
            .in(null, "y", 30),
        new Case(GROUP_BY_COUNT, "null_new_key",
            "a record whose new key is null is dropped before the repartition topic")
            .in("a", "", 10)
            .in("a", "x", 20)
            .in("b", "", 30),
        new Case(GROUP_BY_COUNT, "null_value",
            "a record without value passes the repartition topic and is dropped by count")
            .in("a", null, 10)
            .in("a", "a", 20)
            .in(null, null, 30)
            .in("a", null, 40),
        new Case(GROUP_BY_COUNT, "timestamp_zero", "the first millisecond is a time like any other")
            .in("a", "x", 0)
            .in("b", "x", 0),
        Seeded.fill(
            new Case(GROUP_BY_COUNT, "random_7", "out of order, some null values"),
            7, 40, 3_000),
        // One record becomes several.
        new Case(WORD_COUNT, "words", "each word of a line counts, in order")
            .in(null, "to be or not to be", 10)
            .in(null, "be", 20),
        new Case(WORD_COUNT, "same_word_in_a_line", "every occurrence is an update of its own")
            .in("k", "a a a", 10)
            .in("k", "a b a", 20),
        new Case(WORD_COUNT, "out_of_order",
            "a result's timestamp is the highest of the word so far")
            .in(null, "a b", 100)
            .in(null, "a c", 50)
            .in(null, "b c", 60),
        new Case(WORD_COUNT, "empty_word",
            "Java's split gives the empty line one empty word: a key like any other")
            .in(null, "", 10)
            .in(null, "a  b", 20),
        Seeded.fillWords(
            new Case(WORD_COUNT, "random_8", "eight words, out of order"),
            8, 40, 3_000),
        Seeded.fillWords(
            new Case(WORD_COUNT, "random_9", "eight words, in order of time"),
            9, 40, 0));
  }
}
