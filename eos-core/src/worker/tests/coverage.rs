//! Partitions that no member of the group owns.

use super::*;

/// A static member that was started and owns partition 0 of two.
fn bench(group: Option<&[i32]>) -> Bench {
    let mut bench = Bench::new();
    bench.worker.shared.spec.static_member = true;
    bench.worker.shared.spec.input_partitions = BTreeMap::from([("in".into(), 2)]);
    let partitions = group.map(|group| group.iter().map(|&p| tp(p)).collect());
    bench.kafka.broker().group = partitions;
    bench.assign(&[0]);
    // Longer than the time to the first check, and shorter than that to the second one.
    bench.settle();
    bench.settle();
    bench.kafka.calls();
    bench
}

fn pass(bench: &mut Bench, seconds: usize) -> Vec<String> {
    bench.steps(seconds * 20);
    bench.kafka.calls()
}

#[test]
fn a_partition_that_stays_without_an_owner_makes_a_static_member_rejoin() {
    let mut bench = bench(Some(&[0]));
    let calls = pass(&mut bench, 20);
    assert_eq!(times(&calls, "unsubscribe"), 1, "{calls:?}");
    assert_eq!(times(&calls, "subscribe in"), 1, "{calls:?}");
    bench.kafka.broker().membership = Some((9, "member-2".into()));
    bench.kafka.broker().group = Some(vec![tp(0), tp(1)]);
    bench.assign(&[0, 1]);
    let calls = pass(&mut bench, 60);
    assert_eq!(times(&calls, "unsubscribe"), 0, "{calls:?}");
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(3), Some(3)));
    assert_eq!(bench.visible().len(), 6);
}

/// Each LeaveGroup is lost, or arrives after the JoinGroup. The group gives the new consumer the former assignment.
#[test]
fn a_member_with_an_unchanged_assignment_rejoins_less_and_less_often() {
    let mut bench = bench(Some(&[0]));
    let mut joined = 0;
    let mut rejoins_within = |bench: &mut Bench, seconds: usize| {
        let before = joined;
        for _ in 0..seconds {
            let again = times(&pass(bench, 1), "subscribe in");
            if again > 0 {
                joined += again;
                bench.kafka.broker().membership = Some((9, format!("member-{joined}")));
                bench.assign(&[0]);
            }
        }
        joined - before
    };
    assert_eq!(rejoins_within(&mut bench, 30), 3);
    assert_eq!(rejoins_within(&mut bench, 60), 2, "after 16 and 32 s");
    for _ in 0..3 {
        assert_eq!(rejoins_within(&mut bench, 70), 1, "after 64 s");
    }
}

#[test]
fn a_partition_that_is_moving_to_a_new_owner_is_ignored() {
    let mut bench = bench(Some(&[0]));
    bench.kafka.broker().group = Some(vec![tp(0), tp(1)]);
    let calls = pass(&mut bench, 60);
    assert_eq!(
        (times(&calls, "describe"), times(&calls, "unsubscribe")),
        (1, 0)
    );
}

#[test]
fn a_dynamic_member_does_not_look() {
    let mut bench = Bench::new();
    bench.worker.shared.spec.static_member = false;
    bench.kafka.broker().group = Some(vec![]);
    bench.assign(&[0]);
    let calls = pass(&mut bench, 60);
    assert_eq!(times(&calls, "describe"), 0);
}
