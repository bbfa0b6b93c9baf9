//! A new owner waits for the transaction of the former one, or ends it.

use std::time::{Duration, Instant};

use eos_core::boundary::{LedgerFailure, Taken};
use eos_postgres::testing::{run, value};
use eos_postgres::{Postgres, SqlTable};
use eos_protocol::state::TopicUuid;

use crate::support::{Register, Worker, database, partition, plan, rows, wait};

const TABLE: &str = "CREATE TABLE t (n bigint)";

fn worker(url: &str, name: &str) -> (Worker, SqlTable<String, i64>) {
    let shop = Postgres::connect(url).unwrap();
    let table = shop.table("t").column("n", |_, n: &i64| *n);
    (Worker::new(&shop, &[table.register()], name), table)
}

/// A frozen worker holds its position. Its session is ended, and it finds out when it wakes.
#[test]
fn a_frozen_worker_is_ended() {
    let url = database("frozen", TABLE);
    let (mut zombie, table) = worker(&url, "zombie");
    let held = zombie.take(0);
    zombie.begin(&held);
    zombie.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    wait(|slice| zombie.session.flush(slice)).unwrap();
    let (mut owner, _) = worker(&url, "owner");
    let start = Instant::now();
    let taken = owner.take(0);
    let waited = start.elapsed();
    assert!(waited > Duration::from_millis(900), "{waited:?}");
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    owner.begin(&taken);
    owner.put(&table, (0, 0), &"k".into(), Some(&2)).unwrap();
    owner.finish(&taken, 1).unwrap();
    assert!(zombie.finish(&held, 1).is_err());
    assert!(zombie.session.is_spoiled());
    assert_eq!(rows(&url, "SELECT n FROM t"), "2");
}

/// A partition that is held does not hold up the others.
#[test]
fn free_partitions_are_answered_first() {
    let url = database("free", TABLE);
    let (mut zombie, table) = worker(&url, "zombie");
    let held = zombie.take(0);
    zombie.begin(&held);
    zombie.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    wait(|slice| zombie.session.flush(slice)).unwrap();
    let (mut owner, _) = worker(&url, "owner");
    let of = [partition(0), partition(1), partition(2)];
    let start = Instant::now();
    let taken = wait(|slice| owner.positions.take_over(&of, slice)).unwrap();
    assert!(start.elapsed() < Duration::from_millis(800));
    let names: Vec<i32> = taken.iter().map(|t| t.partition.partition.get()).collect();
    assert_eq!(names, [1, 2]);
}

/// A session that also waits for the position is no culprit: `pg_blocking_pids` would name it.
#[test]
fn another_waiting_worker_is_left_alone() {
    let url = database("waiting", TABLE);
    let (mut zombie, table) = worker(&url, "zombie");
    let held = zombie.take(0);
    zombie.begin(&held);
    zombie.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    wait(|slice| zombie.session.flush(slice)).unwrap();
    let takers: Vec<_> = (0..2)
        .map(|number| {
            let url = url.clone();
            std::thread::spawn(move || {
                let (mut taker, _) = worker(&url, &format!("taker-{number}"));
                take_repeatedly(&mut taker).epoch
            })
        })
        .collect();
    let mut epochs: Vec<_> = takers
        .into_iter()
        .map(|taker| taker.join().unwrap())
        .collect();
    epochs.sort();
    assert!(epochs[0] < epochs[1], "{epochs:?}");
}

/// Takes a partition over, as a worker does. If the server grants a lock just as `lock_timeout` ends the wait, it may report
/// 57014, as if a user had cancelled the statement. The worker repeats the call.
fn take_repeatedly(taker: &mut Worker) -> Taken {
    for _ in 0..5 {
        match taker.try_take(0) {
            Ok(taken) => return taken,
            Err(error) => assert_eq!(error.failure, LedgerFailure::Retriable, "{error}"),
        }
    }
    panic!("five take-overs have failed");
}

/// A session that is not of eos is waited for, and never ended.
#[test]
fn a_stranger_is_waited_for() {
    let url = database("stranger", TABLE);
    let (mut owner, _) = worker(&url, "owner");
    owner.take(0);
    let stranger = {
        let url = url.clone();
        std::thread::spawn(move || {
            run(
                &url,
                "BEGIN; UPDATE eos.positions SET name = name; SELECT pg_sleep(2); COMMIT",
            )
        })
    };
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    owner.take(0);
    assert!(start.elapsed() > Duration::from_millis(1000));
    assert!(stranger.join().unwrap().is_ok(), "the stranger was ended");
}

#[test]
fn a_position_of_another_topic_or_cluster_stops() {
    let url = database("identity", TABLE);
    let shop = Postgres::connect(&url).unwrap();
    let with = |cluster: &str, topic: Option<u128>| {
        let mut plan = plan(&[]);
        plan.cluster_id = Some(cluster.into());
        plan.topics = vec![("orders".into(), topic.map(TopicUuid))];
        Worker::of(&shop, plan, "w")
    };
    let first = with("a", Some(7)).take(0);
    for (mut other, what) in [
        (with("b", Some(7)), "cluster"),
        (with("a", Some(8)), "topic"),
    ] {
        let error = other.try_take(0).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Fatal);
        assert!(
            error.text.contains(&format!("belongs to the {what}")),
            "{error}"
        );
    }
    // The failed take-overs fenced no session, and an unknown id is no other id.
    let again = with("a", None).take(0);
    assert_eq!(again.epoch.0, first.epoch.0 + 1);
    assert_eq!(
        value(&url, "SELECT count(*) FROM eos.positions").unwrap(),
        "1"
    );
}
