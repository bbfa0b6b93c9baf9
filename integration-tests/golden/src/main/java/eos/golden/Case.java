package eos.golden;

import java.util.ArrayList;
import java.util.List;

/** One case: an operator, what is special about it, and the records in order of arrival. */
final class Case {
  /** A record that arrives; a timestamp is in milliseconds since 1970. */
  record Input(String topic, String key, Object value, long timestamp) {}

  /** What the source does with a record whose timestamp is negative. */
  enum Negative {
    FAIL,
    SKIP,
    PARTITION_TIME
  }

  final Operator operator;
  final String name;
  final String about;
  final List<Input> inputs = new ArrayList<>();
  long sizeMs;
  long graceMs;
  /** The distance between the starts of windows; 0 where they do not overlap. */
  long advanceMs;
  /** How much earlier and later a right record may be than the left one. */
  long beforeMs;
  long afterMs;
  Long seed;
  /** Null where the case has no negative timestamp. */
  Negative negative;

  Case(Operator operator, String name, String about) {
    this.operator = operator;
    this.name = name;
    this.about = about;
  }

  /** Length and grace of the windows. */
  Case windows(long sizeMs, long graceMs) {
    this.sizeMs = sizeMs;
    this.graceMs = graceMs;
    return this;
  }

  /** How much earlier and later a right record may be, and the grace. */
  Case within(long beforeMs, long afterMs, long graceMs) {
    this.beforeMs = beforeMs;
    this.afterMs = afterMs;
    this.graceMs = graceMs;
    return this;
  }

  /** Length, distance and grace of windows that overlap. */
  Case hopping(long sizeMs, long advanceMs, long graceMs) {
    this.advanceMs = advanceMs;
    return windows(sizeMs, graceMs);
  }

  /** The same case for another operator. */
  Case as(Operator other) {
    Case same = new Case(other, name, about);
    same.inputs.addAll(inputs);
    same.sizeMs = sizeMs;
    same.graceMs = graceMs;
    same.advanceMs = advanceMs;
    same.beforeMs = beforeMs;
    same.afterMs = afterMs;
    same.seed = seed;
    same.negative = negative;
    return same;
  }

  /** The highest timestamp. */
  long latest() {
    return inputs.stream().mapToLong(Input::timestamp).max().orElse(0);
  }

  Case seed(long seed) {
    this.seed = seed;
    return this;
  }

  Case negative(Negative negative) {
    this.negative = negative;
    return this;
  }

  /** A record of the topic "in". */
  Case in(String key, Object value, long timestamp) {
    return from("in", key, value, timestamp);
  }

  Case more(String key, Object value, long timestamp) {
    return from("more", key, value, timestamp);
  }

  Case stream(String key, Object value, long timestamp) {
    return from("stream", key, value, timestamp);
  }

  Case table(String key, Object value, long timestamp) {
    return from("table", key, value, timestamp);
  }

  /** A row of the global table. */
  Case global(String key, Object value, long timestamp) {
    return from("global", key, value, timestamp);
  }

  Case left(String key, Object value, long timestamp) {
    return from("left", key, value, timestamp);
  }

  Case right(String key, Object value, long timestamp) {
    return from("right", key, value, timestamp);
  }

  Case from(String topic, String key, Object value, long timestamp) {
    if (!operator.topics.contains(topic)) {
      throw new IllegalArgumentException(operator + " does not read " + topic);
    }
    inputs.add(new Input(topic, key, value, timestamp));
    return this;
  }

  /**
   * Whether a task that merges its topics by timestamp (KIP-695) would take the records in this
   * order: "by_timestamp"; "tie" where equal timestamps leave the choice open;
   * "against_timestamps". Null for one topic, and for a global table, whose topic no task merges
   * with another one.
   */
  String arrival() {
    if (operator.topics.size() == 1 || operator.isGlobalJoin()) {
      return null;
    }
    boolean tie = false;
    for (int at = 0; at < inputs.size(); at++) {
      Input taken = inputs.get(at);
      for (String topic : operator.topics) {
        Input head = head(topic, at);
        if (head == null || head.topic().equals(taken.topic())) {
          continue;
        }
        if (head.timestamp() < taken.timestamp()) {
          return "against_timestamps";
        }
        tie |= head.timestamp() == taken.timestamp();
      }
    }
    return tie ? "tie" : "by_timestamp";
  }

  private Input head(String topic, int from) {
    for (Input input : inputs.subList(from, inputs.size())) {
      if (input.topic().equals(topic)) {
        return input;
      }
    }
    return null;
  }
}
