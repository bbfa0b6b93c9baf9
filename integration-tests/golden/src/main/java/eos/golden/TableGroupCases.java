package eos.golden;

import static eos.golden.Operator.TABLE_GROUP_AGGREGATE;
import static eos.golden.Operator.TABLE_GROUP_COUNT;
import static eos.golden.Operator.TABLE_GROUP_REDUCE;

import java.util.ArrayList;
import java.util.List;

/** A table grouped by the first letter of its values. */
final class TableGroupCases {
  private TableGroupCases() {}

  static List<Case> all() {
    List<Case> cases = new ArrayList<>();
    for (Operator operator :
        List.of(TABLE_GROUP_COUNT, TABLE_GROUP_REDUCE, TABLE_GROUP_AGGREGATE)) {
      cases.addAll(each(operator));
    }
    cases.addAll(deletions());
    return cases;
  }

  private static List<Case> each(Operator operator) {
    return List.of(
        new Case(operator, "transitions", "a row comes, changes, goes, and comes back")
            .table("k", null, 10)
            .table("k", "a1", 20)
            .table("k", "a2", 30)
            .table("k", "a2", 40)
            .table("k", null, 50)
            .table("k", null, 60)
            .table("k", "a3", 70),
        new Case(operator, "same_group", "an update within a group is one result (KIP-904)")
            .table("k1", "a1", 10)
            .table("k2", "a2", 20)
            .table("k1", "a3", 30)
            .table("k2", "a3", 40),
        new Case(operator, "moves", "a row leaves its group before it joins the other one")
            .table("k1", "a1", 10)
            .table("k2", "a2", 20)
            .table("k1", "b1", 30)
            .table("k2", "b2", 40)
            .table("k1", "c1", 50)
            .table("k1", "a4", 60)
            .table("k2", null, 70),
        new Case(operator, "equal_timestamps", "one time for all: the order of arrival decides")
            .table("k1", "a1", 10)
            .table("k1", "b1", 10)
            .table("k2", "b2", 10)
            .table("k2", "a2", 10)
            .table("k1", null, 10),
        new Case(operator, "out_of_order", "a result has the highest timestamp of its group")
            .table("k1", "a1", 100)
            .table("k2", "a2", 50)
            .table("k1", "b1", 20)
            .table("k2", "b2", 30)
            .table("k1", "b3", 10)
            .table("k2", null, 5)
            .table("k1", "a1", 40),
        new Case(operator, "null_key", "a row without key is dropped")
            .table(null, "a1", 10)
            .table("k", "a2", 20)
            .table(null, null, 30),
        new Case(operator, "null_new_key", "a row whose new key is null is in no group")
            .table("k", "", 10)
            .table("k", "a1", 20)
            .table("k", "", 30)
            .table("k", "", 40)
            .table("k", null, 50),
        Seeded.fillLetters(
            new Case(operator, "random_54", "in order of time"), "abc", 54, 100, 0),
        Seeded.fillLetters(
            new Case(operator, "random_55", "out of order"), "abc", 55, 100, 3_000));
  }

  private static List<Case> deletions() {
    return List.of(
        new Case(TABLE_GROUP_AGGREGATE, "null_sum", "an adder that returns null deletes the result")
            .table("k1", "a1", 10)
            .table("k2", "a-", 20)
            .table("k3", "a3", 30),
        new Case(TABLE_GROUP_AGGREGATE, "null_rest", "a subtractor that returns null deletes the result")
            .table("k1", "a1", 10)
            .table("k2", "a!", 20)
            .table("k2", null, 30)
            .table("k3", "a3", 40),
        new Case(TABLE_GROUP_AGGREGATE, "null_rest_same_group", "what is added then starts anew")
            .table("k1", "a!", 10)
            .table("k1", "a2", 20)
            .table("k1", "b2", 5),
        new Case(TABLE_GROUP_AGGREGATE, "delete_at_first", "a first row may have no result")
            .table("k1", "a-", 10)
            .table("k2", "a-", 20)
            .table("k3", "a3", 30),
        new Case(TABLE_GROUP_AGGREGATE, "nothing_to_subtract_from", "a row leaves a group without a result")
            .table("k1", "a1", 10)
            .table("k2", "a-", 20)
            .table("k1", null, 30)
            .table("k3", "a3", 40),
        new Case(TABLE_GROUP_AGGREGATE, "nothing_to_subtract_from_same_group", "a row changes in a group without a result")
            .table("k1", "a1", 10)
            .table("k2", "a-", 20)
            .table("k1", "a4", 30)
            .table("k3", "a3", 40));
  }
}
