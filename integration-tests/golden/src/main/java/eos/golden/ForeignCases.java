package eos.golden;

import static eos.golden.Operator.FOREIGN_INNER;
import static eos.golden.Operator.FOREIGN_LEFT;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Two tables joined by a foreign key, which stands before the "=" of a left value. */
final class ForeignCases {
  private ForeignCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator join : List.of(FOREIGN_INNER, FOREIGN_LEFT)) {
      cases.addAll(each(join));
    }
    return cases;
  }

  private static List<Case> each(Operator join) {
    return List.of(
        transitions(join),
        new Case(join, "right_rows", "the right row comes, changes, goes and comes again")
            .left("k", "a=1", 10)
            .left("l", "a=2", 20)
            .right("a", "r1", 30)
            .right("a", "r2", 40)
            .right("a", null, 50)
            .right("a", null, 60)
            .right("a", "r3", 70),
        new Case(join, "null_foreign_keys", "a foreign key becomes null, stays null, and comes back")
            .right("a", "r1", 10)
            .left("k", "a=1", 20)
            .left("k", "=2", 30)
            .left("k", "=3", 40)
            .right("a", "r2", 50)
            .left("k", "a=4", 60)
            .left("k", "=5", 70)
            .left("k", null, 80),
        new Case(join, "deleted_left", "a left row is deleted, with and without a partner")
            .right("a", "r1", 10)
            .left("k", "a=1", 20)
            .left("k", null, 30)
            .left("l", "b=1", 40)
            .left("l", null, 50)
            .left("m", null, 60)
            .right("b", "r2", 70),
        new Case(join, "out_of_order", "a result has the later time of its rows")
            .right("a", "r1", 100)
            .left("k", "a=1", 50)
            .left("k", "a=2", 200)
            .right("a", "r2", 150)
            .right("a", null, 60)
            .right("a", "r3", 70),
        new Case(join, "begins_alike", "keys that begin alike are kept apart")
            .left("bc", "a=1", 10)
            .left("c", "ab=2", 20)
            .right("a", "r1", 30)
            .right("ab", "r2", 40),
        random(join, 61),
        random(join, 62));
  }

  /** All transitions of a left row, with a right row for some of the foreign keys. */
  private static Case transitions(Operator join) {
    Case to = new Case(join, "transitions", "all changes of the left row, with and without partners");
    to.right("a", "A", 10).right("b", "B", 11);
    String[] values = {null, "=", "a=", "b=", "none=", "other="};
    long time = 20;
    for (int from = 0; from < values.length; from++) {
      for (int then = 0; then < values.length; then++) {
        String key = "k" + from + then;
        to.left(key, values[from] == null ? null : values[from] + "1", time++);
        to.left(key, values[then] == null ? null : values[then] + "2", time++);
        to.left(key, null, time++);
      }
    }
    return to;
  }

  private static Case random(Operator join, long seed) {
    Case to = new Case(join, "random_" + seed, "random updates of both sides");
    Random random = new Random(seed);
    String[] foreign = {"", "a", "b", "c"};
    long time = 1_000;
    for (int record = 0; record < 120; record++) {
      time += random.nextInt(1_000);
      boolean deletes = random.nextInt(5) == 0;
      if (random.nextBoolean()) {
        String value = foreign[random.nextInt(foreign.length)] + "=" + record;
        to.left("k" + random.nextInt(5), deletes ? null : value, time);
      } else {
        to.right(foreign[1 + random.nextInt(3)], deletes ? null : "r" + record, time);
      }
    }
    return to;
  }
}
