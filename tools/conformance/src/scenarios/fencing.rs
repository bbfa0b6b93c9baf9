//! Epochs: fenced producers and the errors that they receive.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::Script;
use crate::reading::owned;
use crate::transactions::Producer;
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("a_second_producer_fences_the_first", |world| {
        let (topic, first) = (world.topic()?, world.producer()?);
        let second = world.init(&first.id)?;
        world.same("same id", second.producer_id == first.producer_id, true);
        world.same("epoch", second.epoch, first.epoch + 1);
        world.same("codes", world.add_and_end(&first, &topic)?, (47, 47));
        world.returns("offsets", world.add_offsets(&first, "some-group"), 47)
    }),
    (
        "the_error_of_a_fenced_producer_depends_on_the_version",
        |world| {
            let (topic, first) = (world.topic()?, world.producer()?);
            world.init(&first.id)?;
            let codes = (
                world.add_once(&first, &[(&topic, 0)], 2)?,
                world.end_once(&first, true, 2)?,
            );
            world.same("newer versions", codes, (vec![90], 90));
            Ok(())
        },
    ),
    ("a_fenced_producer_cannot_produce", |world| {
        let (topic, first) = world.open()?;
        world.init(&first.id)?;
        let answer = world.write(&first, &topic, 1, &["late=1"]);
        world.returns("answer", answer, (47, -1))
    }),
    ("a_second_producer_aborts_what_was_open", |world| {
        let (topic, first) = world.open()?;
        let second = world.init(&first.id)?;
        // One epoch for the abort, one for the successor.
        world.same("epoch", second.epoch, first.epoch + 2);
        let seen = world.reads(&topic, &[(0, "a=1"), (1, "abort")])?;
        world.same("aborted", seen.aborted, vec![(first.producer_id, 0)]);
        Ok(())
    }),
    (
        "the_error_during_an_abort_is_concurrent_transactions",
        |world| {
            let (_, first) = world.open()?;
            let answer = world.init_once(Some(&first.id), 60_000, (-1, -1), 4)?;
            world.same("answer", answer, (51, -1, -1));
            world.init(&first.id)?;
            Ok(())
        },
    ),
    ("the_first_producers_commit_is_refused", |world| {
        let (topic, first) = world.open()?;
        let second = world.init(&first.id)?;
        world.add(&second, &topic)?;
        world.write(&second, &topic, 0, &["b=1"])?;
        world.same("late commit", world.end_once(&first, true, 1)?, 47);
        world.same("state", world.state_of(&second.id)?, (0, "Ongoing".into()));
        world.end(&second, false)?;
        let seen = world.read_stable(&topic, 0)?;
        let id = first.producer_id;
        world.same("aborted", seen.aborted, vec![(id, 0), (id, 2)]);
        Ok(())
    }),
    ("the_fenced_producers_next_batch_is_refused", |world| {
        let (topic, first) = world.open()?;
        let second = world.init(&first.id)?;
        world.transaction(&second, &topic, 0, &["b=1"], true)?;
        let late = world.write(&first, &topic, 1, &["late=1"]);
        world.returns("late", late, (47, -1))
    }),
    ("a_transaction_times_out", |world| {
        let (topic, producer) = timed_out(world)?;
        let seen = world.reads(&topic, &[(0, "a=1"), (1, "abort")])?;
        world.same("aborted", seen.aborted, vec![(producer.producer_id, 0)]);
        Ok(())
    }),
    ("a_timed_out_producer_is_fenced", |world| {
        let (topic, producer) = timed_out(world)?;
        let produced = world.write(&producer, &topic, 1, &["late=1"])?;
        world.same("produce", produced, (47, -1));
        let codes = (
            world.end_once(&producer, true, 1)?,
            world.end_once(&producer, false, 2)?,
        );
        world.same("end", codes, (47, 90));
        world.returns("add", world.add(&producer, &topic), 47)
    }),
    ("a_timed_out_producer_comes_back", |world| {
        let (topic, producer) = timed_out(world)?;
        let again = world.init(&producer.id)?;
        world.same("epoch", again.epoch, producer.epoch + 2);
        let at = world.transaction(&again, &topic, 0, &["b=1"], true);
        world.returns("offset", at, 2)
    }),
    ("its_owner_bumps_its_epoch", |world| {
        let producer = world.producer()?;
        world.returns("answer", bump(world, &producer), (0, 1))
    }),
    ("its_owner_may_repeat_the_bump", |world| {
        let producer = world.producer()?;
        let answers = (bump(world, &producer)?, bump(world, &producer)?);
        world.same("answers", answers, ((0, 1), (0, 1)));
        Ok(())
    }),
    ("a_fenced_owner_cannot_bump", |world| {
        let producer = world.producer()?;
        world.init(&producer.id)?;
        world.returns("answer", bump(world, &producer), (90, -1))
    }),
    ("a_wrong_producer_id_cannot_bump", |world| {
        let (producer, other) = (world.producer()?, world.producer()?);
        let mixed = Producer {
            producer_id: other.producer_id,
            ..producer
        };
        world.returns("answer", bump(world, &mixed), (90, -1))
    }),
    ("a_bump_over_an_open_transaction_aborts_it", |world| {
        let (_, producer) = world.open()?;
        let known = (producer.producer_id, producer.epoch);
        let first = world.init_once(Some(&producer.id), 60_000, known, 4)?;
        world.same("first", first, (51, -1, -1));
        world.becomes(&producer.id, "CompleteAbort")?;
        // The abort took the next epoch. No other producer came in between, so the owner receives this epoch.
        let again = world.init_once(Some(&producer.id), 60_000, known, 4)?;
        world.same("again", (again.0, again.2), (0, 1));
        Ok(())
    }),
    ("a_timed_out_owner_bumps_its_epoch", |world| {
        let (_, producer) = timed_out(world)?;
        world.same("answer", bump(world, &producer)?, (0, 1));
        world.returns("and again", bump(world, &producer), (0, 1))
    }),
    ("a_timed_out_owner_with_a_successor_is_fenced", |world| {
        let (_, producer) = timed_out(world)?;
        world.init(&producer.id)?;
        world.returns("answer", bump(world, &producer), (90, -1))
    }),
    ("an_epoch_ahead_is_refused", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        let ahead = Producer {
            epoch: producer.epoch + 1,
            ..producer
        };
        world.returns("codes", world.add_and_end(&ahead, &topic), (47, 47))
    }),
    ("two_ids_do_not_fence_each_other", |world| {
        let (topic, one) = world.open()?;
        let two = world.open_in(&topic, &["a=1"])?;
        world.end(&one, true)?;
        world.end(&two, true)?;
        let seen = world.read_stable(&topic, 0)?;
        let expected = owned(&[(0, "a=1"), (1, "a=1")]);
        world.same("records", seen.committed(), expected);
        Ok(())
    }),
];

/// The number of attempts of a race, after which the machine counts as too slow.
const RACES: usize = 10;

/// Runs a race against a time limit of the broker, until one attempt takes less than the limit by the local clock.
///
/// In a longer attempt, the broker may have been right to act on the limit, so the result proves nothing. Each attempt
/// must use new names.
pub(super) fn race<T>(limit: Duration, mut run: impl FnMut(&mut Clock) -> Result<T>) -> Result<T> {
    let mut failure = None;
    for _ in 0..RACES {
        let mut clock = Clock::default();
        let came = run(&mut clock);
        clock.stop();
        if clock.longest < limit {
            return came;
        }
        failure = came.err();
    }
    let slow = format!("this machine is too slow: {RACES} times it took {limit:?} or longer");
    Err(match failure {
        Some(failure) => failure.context(slow),
        None => anyhow!(slow),
    })
}

/// Measures the maximum time that the broker can have waited.
#[derive(Debug, Default)]
pub(super) struct Clock {
    since: Option<Instant>,
    longest: Duration,
}

impl Clock {
    /// Starts the measurement. The next request starts the broker's timer.
    pub(super) fn start(&mut self) {
        self.stop();
        self.since = Some(Instant::now());
    }

    /// Ends the measurement. The response to the last request that must be in time has arrived.
    pub(super) fn stop(&mut self) {
        let time = self.since.take().map_or(Duration::ZERO, |it| it.elapsed());
        self.longest = self.longest.max(time);
    }

    /// Ends the measurement, and starts the next one at `sent`, because the broker restarted its timer with this
    /// request.
    pub(super) fn renewed(&mut self, sent: Instant) {
        self.stop();
        self.since = Some(sent);
    }
}

/// Returns a topic with a record of a transaction that the coordinator aborted at its timeout, and its producer.
fn timed_out(world: &World) -> Result<(String, Producer)> {
    let limit = Duration::from_millis(500);
    let (topic, producer, codes) = race(limit, |clock| {
        let (topic, id) = (world.topic()?, world.fresh("x"));
        let producer = world.init_with(&id, 500)?;
        clock.start();
        let added = world.add(&producer, &topic)?;
        let written = world.write(&producer, &topic, 0, &["a=1"])?;
        clock.stop();
        Ok((topic, producer, (added, written.0)))
    })?;
    ensure!(codes == (0, 0), "added and written: {codes:?}");
    world.until("it timed out", || {
        std::thread::sleep(Duration::from_millis(50));
        Ok(world.state_of(&producer.id)?.1 == "CompleteAbort")
    })?;
    Ok((topic, producer))
}

fn bump(world: &World, producer: &Producer) -> Result<(i16, i16)> {
    let known = (producer.producer_id, producer.epoch);
    let id = producer.id.clone();
    let ask = || world.init_once(Some(&id), 60_000, known, 4);
    let (error, _, epoch) = world.settled(ask, |it| it.0)?;
    Ok((error, epoch))
}
