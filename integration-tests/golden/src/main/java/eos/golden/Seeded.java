package eos.golden;

import java.util.Random;

/**
 * Pseudo-random records: java.util.Random is one fixed algorithm, so a seed is a case. The records
 * are in the file too, so no reader has to generate them again.
 */
final class Seeded {
  private final Case to;
  private final Random random;
  private long now = 1_000;

  private Seeded(Case to) {
    this.to = to;
    this.random = new Random(to.seed);
  }

  /** Records of few keys, out of order by up to {@code disorderMs}; one in ten has a null value. */
  static Case fill(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      to.in(seeded.key(), seeded.value(0.1), seeded.timestamp(disorderMs));
    }
    return to;
  }

  /** Updates of a table; one in four is a tombstone. */
  static Case fillTable(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      to.table(seeded.key(), seeded.value(0.25), seeded.timestamp(disorderMs));
    }
    return to;
  }

  /** Records of both sides of a join. */
  static Case fillJoin(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      if (seeded.random.nextInt(3) == 0) {
        to.table(seeded.key(), seeded.value(0.25), seeded.timestamp(disorderMs));
      } else {
        to.stream(seeded.key(), seeded.value(0.05), seeded.timestamp(disorderMs));
      }
    }
    return to;
  }

  /**
   * Records of a stream whose values begin with the key of a row, and rows of a global table. One in
   * eight records of the stream selects no row.
   */
  static Case fillGlobalJoin(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      if (seeded.random.nextInt(3) == 0) {
        to.global(seeded.key(), seeded.value(0.25), seeded.timestamp(disorderMs));
        continue;
      }
      String row = seeded.random.nextInt(8) == 0 ? "" : seeded.key();
      Object value = seeded.value(0.05);
      to.stream(
          seeded.key(), value == null ? null : row + "=" + value, seeded.timestamp(disorderMs));
    }
    return to;
  }

  /** Records of two grouped streams; one in seven of the first deletes the result. */
  static Case fillCogroup(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      switch (seeded.random.nextInt(7)) {
        case 0 -> to.in(seeded.key(), "-", seeded.timestamp(disorderMs));
        case 1, 2, 3 -> to.more(seeded.key(), seeded.value(0.05), seeded.timestamp(disorderMs));
        default -> to.in(seeded.key(), seeded.value(0.05), seeded.timestamp(disorderMs));
      }
    }
    return to;
  }

  /** Records of both sides of a join of streams. */
  static Case fillStreamJoin(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      String value = "v" + at;
      if (seeded.random.nextBoolean()) {
        to.left(seeded.key(), value, seeded.timestamp(disorderMs));
      } else {
        to.right(seeded.key(), value, seeded.timestamp(disorderMs));
      }
    }
    return to;
  }

  /** Updates of both tables of a join; one in four is a tombstone. */
  static Case fillTableJoin(Case to, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      if (seeded.random.nextBoolean()) {
        to.left(seeded.key(), seeded.value(0.25), seeded.timestamp(disorderMs));
      } else {
        to.right(seeded.key(), seeded.value(0.25), seeded.timestamp(disorderMs));
      }
    }
    return to;
  }

  /** Updates of a table whose values begin with one of these letters; one in four is a tombstone. */
  static Case fillLetters(Case to, String letters, long seed, int records, int disorderMs) {
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      char letter = letters.charAt(seeded.random.nextInt(letters.length()));
      Object number = seeded.value(0.25);
      String topic = to.operator.topics.get(0);
      to.from(topic, seeded.key(), number == null ? null : letter + "" + number, seeded.timestamp(disorderMs));
    }
    return to;
  }

  /** Lines of words. */
  static Case fillWords(Case to, long seed, int records, int disorderMs) {
    String[] words = {"the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog"};
    Seeded seeded = new Seeded(to.seed(seed));
    for (int at = 0; at < records; at++) {
      StringBuilder line = new StringBuilder(words[seeded.random.nextInt(words.length)]);
      for (int more = seeded.random.nextInt(4); more > 0; more--) {
        line.append(' ').append(words[seeded.random.nextInt(words.length)]);
      }
      to.in(null, line.toString(), seeded.timestamp(disorderMs));
    }
    return to;
  }

  private String key() {
    return String.valueOf((char) ('a' + random.nextInt(5)));
  }

  private Object value(double nulls) {
    if (random.nextDouble() < nulls) {
      return null;
    }
    int number = random.nextInt(1_000);
    return to.operator.takesNumbers() ? (Object) (long) (number - 500) : "v" + number;
  }

  private long timestamp(int disorderMs) {
    // At least a millisecond: without disorder no two are equal.
    now += 1 + random.nextInt(700);
    return disorderMs == 0 ? now : Math.max(0, now - random.nextInt(disorderMs));
  }
}
