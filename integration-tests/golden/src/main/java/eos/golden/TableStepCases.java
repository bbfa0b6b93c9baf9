package eos.golden;

import static eos.golden.Operator.TABLE_FILTER;
import static eos.golden.Operator.TABLE_MAP;
import static eos.golden.Operator.TO_TABLE;

import java.util.ArrayList;
import java.util.List;

/** Tables that are made of one table or stream; every case once for each operator. */
final class TableStepCases {
  private TableStepCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator operator : List.of(TABLE_FILTER, TABLE_MAP, TO_TABLE)) {
      cases.addAll(each(operator));
    }
    return cases;
  }

  private static List<Case> each(Operator operator) {
    return List.of(
        transitions(operator),
        rows(operator, "never_there", "rows of which there never was a result", "a")
            .row("-1", 10)
            .row("-2", 20)
            .row(null, 30)
            .row(null, 40)
            .made(),
        rows(operator, "equal_timestamps", "at equal timestamps the last to arrive wins", "a")
            .row("1", 10)
            .row("-2", 10)
            .row("3", 10)
            .row(null, 10)
            .row("4", 10)
            .made(),
        rows(operator, "out_of_order", "results have the timestamps of their updates", "a")
            .row("1", 100)
            .row("2", 50)
            .row("-3", 70)
            .row("4", 20)
            .row(null, 10)
            .row("5", 5)
            .made(),
        rows(operator, "same_value_again", "an update that changes nothing is emitted", "a")
            .row("1", 10)
            .row("1", 20)
            .row("-", 30)
            .row("-", 40)
            .made(),
        rows(operator, "null_key", "a record without key is dropped", null)
            .row("1", 10)
            .key("a")
            .row("2", 20)
            .key(null)
            .row(null, 30)
            .row("-", 40)
            .made(),
        rows(operator, "empty_strings", "an empty value is a value, an empty key a key", "")
            .row("1", 10)
            .row("", 20)
            .row(null, 30)
            .key("a")
            .row("", 40)
            .made(),
        Seeded.fillLetters(
            new Case(operator, "random_50", "in order of time"), "v-", 50, 80, 0),
        Seeded.fillLetters(
            new Case(operator, "random_51", "out of order"), "v-", 51, 80, 3_000));
  }

  /** Each pair of neighbours: no row, a value that passes, one that does not, a tombstone. */
  private static Case transitions(Operator operator) {
    String[] values = {null, "1", "2", "-1", "-2"};
    Rows rows = rows(operator, "transitions", "from each kind of row to each other one", "a");
    long time = 10;
    for (int from = 0; from < values.length; from++) {
      for (int to = 0; to < values.length; to++) {
        rows.key("k" + from + to).row(values[from], time).row(values[to], time + 1);
        time += 10;
      }
    }
    return rows.made();
  }

  private static Rows rows(Operator operator, String name, String about, String key) {
    return new Rows(new Case(operator, name, about)).key(key);
  }

  /** Adds records of one key to a case. */
  private static final class Rows {
    private final Case to;
    private String key;

    Rows(Case to) {
      this.to = to;
    }

    Rows key(String key) {
      this.key = key;
      return this;
    }

    Rows row(String value, long timestamp) {
      to.from(to.operator.topics.get(0), key, value, timestamp);
      return this;
    }

    Case made() {
      return to;
    }
  }
}
