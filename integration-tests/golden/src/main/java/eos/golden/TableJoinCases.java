package eos.golden;

import static eos.golden.Operator.TABLE_JOIN;
import static eos.golden.Operator.TABLE_LEFT_JOIN;
import static eos.golden.Operator.TABLE_OUTER_JOIN;

import java.util.ArrayList;
import java.util.List;

/** Two tables joined by their keys; every case once for each kind of join. */
final class TableJoinCases {
  private TableJoinCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator join : List.of(TABLE_JOIN, TABLE_LEFT_JOIN, TABLE_OUTER_JOIN)) {
      cases.addAll(each(join));
    }
    return cases;
  }

  private static List<Case> each(Operator join) {
    return List.of(
        transitions(join, "left", "right"),
        transitions(join, "right", "left"),
        new Case(join, "both_sides", "both sides come and go in turns")
            .left("a", "l1", 10)
            .right("a", "r1", 20)
            .left("a", "l2", 30)
            .right("a", "r2", 40)
            .left("a", null, 50)
            .right("a", "r3", 60)
            .left("a", "l3", 70)
            .right("a", null, 80)
            .left("a", null, 90)
            .right("a", null, 100)
            .left("a", null, 110),
        new Case(join, "equal_timestamps", "one time on both sides: the order of arrival decides")
            .left("a", "l1", 10)
            .right("a", "r1", 10)
            .right("a", "r2", 10)
            .left("a", "l2", 10)
            .left("a", null, 10)
            .right("a", null, 10)
            .right("a", "r3", 10)
            .left("a", "l3", 10),
        new Case(join, "out_of_order", "the last to arrive wins; a result has the later time of its rows")
            .left("a", "l1", 100)
            .right("a", "r1", 50)
            .left("a", "l2", 20)
            .right("a", "r2", 30)
            .right("a", null, 10)
            .left("a", "l3", 5)
            .right("a", "r3", 200)
            .left("a", null, 40)
            .right("a", "r4", 60)
            .right("a", null, 70),
        new Case(join, "null_keys", "rows without key are dropped")
            .left(null, "l1", 10)
            .right(null, "r1", 20)
            .left("a", "l2", 30)
            .right(null, null, 40)
            .left(null, null, 50)
            .right("a", "r2", 60),
        new Case(join, "other_keys", "rows of other keys are no partners")
            .left("a", "l1", 10)
            .right("b", "r1", 20)
            .right("aa", "r2", 30)
            .left("b", "l2", 40),
        new Case(join, "same_value_again", "an update that changes nothing is emitted")
            .left("a", "l1", 10)
            .left("a", "l1", 20)
            .right("a", "r1", 30)
            .right("a", "r1", 40)
            .left("a", "l1", 50),
        new Case(join, "empty_strings", "empty strings are values and keys")
            .left("", "", 10)
            .right("", "", 20)
            .right("", null, 30)
            .left("", null, 40),
        Seeded.fillTableJoin(new Case(join, "random_52", "in order of time"), 52, 120, 0),
        Seeded.fillTableJoin(new Case(join, "random_53", "out of order"), 53, 120, 3_000));
  }

  /**
   * All transitions of one side, with each kind of row on the other: none, a value, a tombstone of
   * nothing, and one that was deleted.
   */
  private static Case transitions(Operator join, String side, String other) {
    Case to =
        new Case(join, "transitions_" + side, "all changes of the " + side + " row, by the other");
    String[] values = {null, "1", "2"};
    String[][] others = {{}, {"o"}, {null}, {"o", null}};
    long time = 10;
    for (int before = 0; before < others.length; before++) {
      for (String from : values) {
        for (String then : values) {
          String key = "k" + before + from + then;
          for (String row : others[before]) {
            to.from(other, key, row, time++);
          }
          to.from(side, key, from, time++);
          to.from(side, key, then, time++);
          to.from(side, key, null, time++);
        }
      }
    }
    return to;
  }
}
