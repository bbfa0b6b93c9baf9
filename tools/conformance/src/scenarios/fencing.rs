//! Epochs: who is fenced, by what, and how it is told.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::log::owned;
use super::scenarios;
use crate::transactions::Producer;
use crate::world::World;

scenarios! { "fencing":
    a_second_producer_fences_the_first,
    fencing_is_spelled_by_version,
    a_fenced_producer_cannot_produce,
    a_second_producer_aborts_what_was_open,
    the_answer_while_aborting_is_concurrent,
    the_first_producers_commit_is_not_taken,
    the_fenced_producers_next_batch_is_refused,
    a_transaction_times_out,
    a_timed_out_producer_is_fenced,
    a_timed_out_producer_comes_back,
    its_owner_bumps_its_epoch,
    its_owner_may_ask_twice,
    a_fenced_owner_cannot_bump,
    a_wrong_producer_id_cannot_bump,
    a_bump_over_an_open_transaction_aborts_it,
    a_timed_out_owner_asks_for_its_epoch,
    a_timed_out_owner_with_a_successor_is_fenced,
    an_epoch_ahead_is_refused,
    two_ids_do_not_fence_each_other,
}

fn open(world: &mut World, topic: &str) -> Result<Producer> {
    let producer = world.producer()?;
    world.add(&producer, topic)?;
    world.write(&producer, topic, 0, &["a=1"])?;
    Ok(producer)
}

fn a_second_producer_fences_the_first(world: &mut World) -> Result<()> {
    let (topic, first) = (world.topic()?, world.producer()?);
    let second = world.init(&first.id)?;
    world.same("same id", second.producer_id == first.producer_id, true);
    world.same("epoch", second.epoch, first.epoch + 1);
    let codes = (world.add(&first, &topic)?, world.end_once(&first, true, 1)?);
    world.same("codes", codes, (47, 47));
    let offsets = world.add_offsets(&first, "some-group")?;
    world.same("offsets", offsets, 47);
    Ok(())
}

fn fencing_is_spelled_by_version(world: &mut World) -> Result<()> {
    let (topic, first) = (world.topic()?, world.producer()?);
    world.init(&first.id)?;
    let codes = (
        world.add_once(&first, &[(&topic, 0)], 2)?,
        world.end_once(&first, true, 2)?,
    );
    world.same("newer versions", codes, (vec![90], 90));
    Ok(())
}

fn a_fenced_producer_cannot_produce(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic)?;
    world.init(&first.id)?;
    let answer = world.write(&first, &topic, 1, &["late=1"])?;
    world.same("answer", answer, (47, -1));
    Ok(())
}

fn a_second_producer_aborts_what_was_open(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic)?;
    let second = world.init(&first.id)?;
    // One epoch for the abort, one for the successor.
    world.same("epoch", second.epoch, first.epoch + 2);
    let seen = world.read_stable(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "abort")]));
    world.same("aborted", seen.aborted, vec![(first.producer_id, 0)]);
    Ok(())
}

fn the_answer_while_aborting_is_concurrent(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic)?;
    let answer = world.init_once(Some(&first.id), 60_000, (-1, -1), 4)?;
    world.same("answer", answer, (51, -1, -1));
    world.init(&first.id)?;
    Ok(())
}

fn the_first_producers_commit_is_not_taken(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic)?;
    let second = world.init(&first.id)?;
    world.add(&second, &topic)?;
    world.write(&second, &topic, 0, &["b=1"])?;
    let late = world.end_once(&first, true, 1)?;
    world.same("late commit", late, 47);
    let state = world.state_of(&second.id)?;
    world.same("state", state, (0, "Ongoing".into()));
    world.end(&second, false)?;
    let seen = world.read_stable(&topic, 0)?;
    let id = first.producer_id;
    world.same("aborted", seen.aborted, vec![(id, 0), (id, 2)]);
    Ok(())
}

fn the_fenced_producers_next_batch_is_refused(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic)?;
    let second = world.init(&first.id)?;
    world.transaction(&second, &topic, 0, &["b=1"], true)?;
    let late = world.write(&first, &topic, 1, &["late=1"])?;
    world.same("late", late, (47, -1));
    Ok(())
}

/// How often a race against a limit of the broker's is run before the machine is called too slow.
const RACES: usize = 10;

/// Runs a race against a limit of the broker's, until it took less than that by the clock here.
///
/// If it took longer, the broker may be right to have acted on the limit, and whatever came of it says
/// nothing: it is run again, under names that it has to make itself.
pub(super) fn race<T>(
    world: &mut World,
    limit: Duration,
    mut run: impl FnMut(&mut World, &mut Clock) -> Result<T>,
) -> Result<T> {
    let mut failure = None;
    for _ in 0..RACES {
        let mut clock = Clock::default();
        let came = run(world, &mut clock);
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

/// Measures for how long a broker may have waited at most.
#[derive(Debug, Default)]
pub(super) struct Clock {
    since: Option<Instant>,
    longest: Duration,
}

impl Clock {
    /// What is sent from now on starts the broker's time.
    pub(super) fn start(&mut self) {
        self.stop();
        self.since = Some(Instant::now());
    }

    /// What was to come in time has been answered.
    pub(super) fn stop(&mut self) {
        let time = self.since.take().map_or(Duration::ZERO, |it| it.elapsed());
        self.longest = self.longest.max(time);
    }

    /// What was sent at that moment was to come in time, has been answered, and started the time anew.
    pub(super) fn renewed(&mut self, sent: Instant) {
        self.stop();
        self.since = Some(sent);
    }
}

/// A producer whose transaction the coordinator has aborted because it took too long, and where it has
/// written a record.
fn timed_out(world: &mut World) -> Result<(String, Producer)> {
    let limit = Duration::from_millis(500);
    let (topic, producer, codes) = race(world, limit, |world, clock| {
        let (topic, id) = (world.topic()?, world.fresh("x"));
        let producer = world.init_with(&id, 500)?;
        clock.start();
        let added = world.add(&producer, &topic)?;
        let written = world.write(&producer, &topic, 0, &["a=1"])?;
        clock.stop();
        Ok((topic, producer, (added, written.0)))
    })?;
    ensure!(codes == (0, 0), "added and written: {codes:?}");
    world.until("it timed out", |world| {
        std::thread::sleep(Duration::from_millis(50));
        Ok(world.state_of(&producer.id)?.1 == "CompleteAbort")
    })?;
    Ok((topic, producer))
}

fn a_transaction_times_out(world: &mut World) -> Result<()> {
    let (topic, producer) = timed_out(world)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "abort")]));
    world.same("aborted", seen.aborted, vec![(producer.producer_id, 0)]);
    Ok(())
}

fn a_timed_out_producer_is_fenced(world: &mut World) -> Result<()> {
    let (topic, producer) = timed_out(world)?;
    let produced = world.write(&producer, &topic, 1, &["late=1"])?;
    world.same("produce", produced, (47, -1));
    let codes = (
        world.end_once(&producer, true, 1)?,
        world.end_once(&producer, false, 2)?,
    );
    world.same("end", codes, (47, 90));
    let added = world.add(&producer, &topic)?;
    world.same("add", added, 47);
    Ok(())
}

fn a_timed_out_producer_comes_back(world: &mut World) -> Result<()> {
    let (topic, producer) = timed_out(world)?;
    let again = world.init(&producer.id)?;
    world.same("epoch", again.epoch, producer.epoch + 2);
    let at = world.transaction(&again, &topic, 0, &["b=1"], true)?;
    world.same("offset", at, 2);
    Ok(())
}

fn bump(world: &mut World, producer: &Producer) -> Result<(i16, i16)> {
    let known = (producer.producer_id, producer.epoch);
    let id = producer.id.clone();
    let ask = |world: &mut World| world.init_once(Some(&id), 60_000, known, 4);
    let (error, _, epoch) = world.settled(ask, |it| it.0)?;
    Ok((error, epoch))
}

fn its_owner_bumps_its_epoch(world: &mut World) -> Result<()> {
    let producer = world.producer()?;
    let answer = bump(world, &producer)?;
    world.same("answer", answer, (0, 1));
    Ok(())
}

fn its_owner_may_ask_twice(world: &mut World) -> Result<()> {
    let producer = world.producer()?;
    let answers = (bump(world, &producer)?, bump(world, &producer)?);
    world.same("answers", answers, ((0, 1), (0, 1)));
    Ok(())
}

fn a_fenced_owner_cannot_bump(world: &mut World) -> Result<()> {
    let producer = world.producer()?;
    world.init(&producer.id)?;
    let answer = bump(world, &producer)?;
    world.same("answer", answer, (90, -1));
    Ok(())
}

fn a_wrong_producer_id_cannot_bump(world: &mut World) -> Result<()> {
    let (producer, other) = (world.producer()?, world.producer()?);
    let mixed = Producer {
        producer_id: other.producer_id,
        ..producer
    };
    let answer = bump(world, &mixed)?;
    world.same("answer", answer, (90, -1));
    Ok(())
}

fn a_bump_over_an_open_transaction_aborts_it(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic)?;
    let known = (producer.producer_id, producer.epoch);
    let first = world.init_once(Some(&producer.id), 60_000, known, 4)?;
    world.same("first", first, (51, -1, -1));
    world.until("it is aborted", |world| {
        Ok(world.state_of(&producer.id)?.1 == "CompleteAbort")
    })?;
    // The abort took the next epoch; nobody came between, so its owner is given just that.
    let again = world.init_once(Some(&producer.id), 60_000, known, 4)?;
    world.same("again", (again.0, again.2), (0, 1));
    Ok(())
}

fn a_timed_out_owner_asks_for_its_epoch(world: &mut World) -> Result<()> {
    let (_, producer) = timed_out(world)?;
    let answer = bump(world, &producer)?;
    world.same("answer", answer, (0, 1));
    let again = bump(world, &producer)?;
    world.same("and again", again, (0, 1));
    Ok(())
}

fn a_timed_out_owner_with_a_successor_is_fenced(world: &mut World) -> Result<()> {
    let (_, producer) = timed_out(world)?;
    world.init(&producer.id)?;
    let answer = bump(world, &producer)?;
    world.same("answer", answer, (90, -1));
    Ok(())
}

fn an_epoch_ahead_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let ahead = Producer {
        epoch: producer.epoch + 1,
        ..producer
    };
    let codes = (world.add(&ahead, &topic)?, world.end_once(&ahead, true, 1)?);
    world.same("codes", codes, (47, 47));
    Ok(())
}

fn two_ids_do_not_fence_each_other(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let one = open(world, &topic)?;
    let two = open(world, &topic)?;
    world.end(&one, true)?;
    world.end(&two, true)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same(
        "records",
        seen.committed(),
        owned(&[(0, "a=1"), (1, "a=1")]),
    );
    Ok(())
}
