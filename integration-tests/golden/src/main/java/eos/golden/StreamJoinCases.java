package eos.golden;

import static eos.golden.Operator.JOIN_WITHIN;
import static eos.golden.Operator.LEFT_JOIN_WITHIN;
import static eos.golden.Operator.OUTER_JOIN_WITHIN;

import java.util.ArrayList;
import java.util.List;

/** Two streams joined within a time; every case once for each kind of join. */
final class StreamJoinCases {
  private StreamJoinCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator join : List.of(JOIN_WITHIN, LEFT_JOIN_WITHIN, OUTER_JOIN_WITHIN)) {
      cases.addAll(each(join));
    }
    return cases;
  }

  private static List<Case> each(Operator join) {
    return List.of(
        new Case(join, "both_ends", "a partner may be as far away as the difference, on both sides")
            .within(10, 10, 0)
            .left("a", "l1", 100)
            .right("a", "r1", 110)
            .right("b", "r2", 120)
            .left("b", "l2", 130),
        new Case(join, "too_far", "a millisecond more is too far")
            .within(10, 10, 0)
            .left("a", "l1", 100)
            .right("a", "r1", 111)
            .right("b", "r2", 120)
            .left("b", "l2", 131)
            .left("c", "l3", 1_000),
        new Case(join, "before_only", "the right record may be earlier, not later")
            .within(10, 0, 0)
            .right("a", "r1", 90)
            .left("a", "l1", 100)
            .right("a", "r2", 101)
            .left("b", "l2", 1_000),
        new Case(join, "after_only", "the right record may be later, not earlier")
            .within(0, 10, 0)
            .right("a", "r1", 99)
            .left("a", "l1", 100)
            .right("a", "r2", 110)
            .right("a", "r3", 111)
            .left("b", "l2", 1_000),
        new Case(join, "asymmetric", "before and after differ")
            .within(5, 20, 30)
            .left("a", "l1", 100)
            .right("a", "r1", 95)
            .right("a", "r2", 94)
            .right("a", "r3", 120)
            .right("a", "r4", 121)
            .left("a", "l2", 101),
        new Case(join, "no_range", "only records of one time are pairs")
            .within(0, 0, 10)
            .left("a", "l1", 100)
            .right("a", "r1", 100)
            .right("a", "r2", 101)
            .left("a", "l2", 101)
            .right("a", "r3", 100),
        new Case(join, "many", "a record meets all partners, in the order of their times")
            .within(10, 10, 50)
            .left("a", "l1", 100)
            .left("a", "l2", 95)
            .left("a", "l3", 105)
            .left("a", "l4", 95)
            .right("a", "r1", 103)
            .right("a", "r2", 104),
        new Case(join, "other_keys", "records of other keys are no partners")
            .within(10, 10, 0)
            .left("a", "l1", 100)
            .right("b", "r1", 101)
            .right("aa", "r2", 102)
            .right("", "r3", 103)
            .left("", "l2", 104)
            .left("c", "l3", 1_000),
        new Case(join, "alone_in_order", "records alone come in the order of their times")
            .within(10, 10, 5)
            .left("c", "l1", 100)
            .left("b", "l2", 101)
            .right("a", "r1", 102)
            .left("a", "l3", 130)
            .right("z", "r2", 2_000),
        new Case(join, "alone_when_closed", "a record goes out alone when its window and grace are over")
            .within(10, 10, 5)
            .left("a", "l1", 100)
            .left("b", "l2", 115)
            .left("b", "l3", 116)
            .right("c", "r1", 1_000),
        new Case(join, "out_of_order_within_grace", "a late record within the grace meets its partners")
            .within(10, 10, 50)
            .left("a", "l1", 100)
            .left("b", "l2", 140)
            .right("a", "r1", 95)
            .right("b", "r2", 130)
            .left("c", "l3", 3_000),
        new Case(join, "longest_wait", "a record before the end of the longer side waits for it")
            .within(0, 100, 10)
            .left("a", "l1", 100)
            .right("b", "r1", 150)
            .right("a", "r2", 200)
            .left("a", "l2", 205)
            .right("c", "r3", 5_000),
        new Case(join, "late", "records that arrive after their window and grace period")
            .within(10, 10, 5)
            .left("a", "l1", 100)
            .right("b", "r1", 120)
            .right("a", "r2", 104)
            .left("c", "l2", 100)
            .left("b", "l3", 121)
            .right("z", "r3", 1_000),
        new Case(join, "late_for_its_partners", "an open left record whose right partner is closed")
            .within(0, 20, 5)
            .right("a", "r1", 100)
            .left("b", "l1", 110)
            .left("a", "l2", 100)
            .left("z", "l3", 1_000),
        new Case(join, "null_key", "records with a null key")
            .within(10, 10, 0)
            .left(null, "l1", 100)
            .right(null, "r1", 101)
            .left("a", "l2", 102)
            .right("a", "r2", 103)
            .left("z", "l3", 1_000),
        new Case(join, "null_value", "records with a null value")
            .within(10, 10, 0)
            .left("a", null, 100)
            .right("a", "r1", 101)
            .left("a", "l1", 102)
            .right("a", null, 103)
            .left("b", null, 104)
            .right("c", null, 105)
            .left("z", "l2", 1_000),
        Seeded.fillStreamJoin(
            new Case(join, "random_41", "in order of time").within(900, 900, 0), 41, 120, 0),
        Seeded.fillStreamJoin(
            new Case(join, "random_42", "in order of time, before and after differ").within(1_500, 200, 0),
            42,
            120,
            0),
        Seeded.fillStreamJoin(
            new Case(join, "random_43", "out of order within the grace").within(900, 900, 3_000), 43, 120, 2_500));
  }
}
