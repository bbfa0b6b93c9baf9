//! The inputs of a task, and its next record.

use std::time::Duration;

use eos_protocol::{
    Admission, Lag, MaxIdle, Now, Offset, OutOfOrder, Pick, Supply, Timestamp, TopicPartition,
};

use super::{Done, MissingRecord, Pipeline};
use crate::client::{Client, ClientError, Records, Source};
use crate::worker::RecordsOf;
use crate::worker::key_places::KeyPlaces;
use crate::worker::shared::Shared;
use crate::worker::task::{Readiness, Task};

/// The maximum number of records per fetch from one partition.
const BATCH: usize = 512;

/// Returns the input with the next record. One input costs nothing. Several inputs are merged by timestamp (KIP-695).
#[inline(always)]
pub(super) fn choose<C: Client>(
    shared: &Shared<C>,
    task: &mut Task<RecordsOf<C>>,
    source: &mut C::Source,
) -> Result<Pick, ClientError> {
    if task.fetched.len() != 1 {
        return choose_by_time(shared, task, source);
    }
    let is_here = |task: &Task<_>| task.fetched.first().and_then(Records::first).is_some();
    if is_here(task) {
        return Ok(Pick::Take(0));
    }
    fetch::<C>(task, 0, source)?;
    Ok(match is_here(task) {
        true => Pick::Take(0),
        false => Pick::Nothing,
    })
}

impl Pipeline {
    /// Returns the time of the task's next record, if it is fetched: the earliest one of its inputs. A task whose calls run
    /// ahead of their turn has none.
    pub(in crate::worker) fn next_time<C: Client>(
        &self,
        task: &mut Task<RecordsOf<C>>,
        source: &mut C::Source,
    ) -> Option<Timestamp> {
        if task.ahead.is_some() || task.readiness != Readiness::Ready {
            return None;
        }
        // A query of each empty input for each record of the others would cost more than the records.
        if task.fetched.iter().all(|input| input.first().is_none()) {
            for input in 0..task.fetched.len() {
                // The turn of the task reports the error.
                let _ = fetch::<C>(task, input, source);
            }
        }
        let inputs = 0..task.fetched.len();
        inputs.filter_map(|input| task.head_time(input)).min()
    }

    /// Counts a record whose key is in another partition than it should be.
    pub(super) fn check_place(
        &mut self,
        app: &str,
        places: &KeyPlaces,
        input: usize,
        from: &TopicPartition,
        key: Option<&[u8]>,
    ) {
        let is_misplaced = self.misplaced.check(app, places, input, from, key);
        self.counters.misplaced += u64::from(is_misplaced);
    }
}

fn choose_by_time<C: Client>(
    shared: &Shared<C>,
    task: &mut Task<RecordsOf<C>>,
    source: &mut C::Source,
) -> Result<Pick, ClientError> {
    let now = shared.env.about_now();
    for input in 0..task.fetched.len() {
        let supply = supply::<C>(task, input, now, source)?;
        if let Some(slot) = task.supplies.get_mut(input) {
            *slot = (now, supply);
        }
    }
    let supplies = task.supplies.iter().map(|(_, supply)| *supply);
    Ok(task.merge.pick(now, supplies))
}

/// Takes back the choice of an input whose first record had no readable time at that choice. Returns true once per choice.
/// The caller has checked that the time is readable now.
#[inline(always)]
pub(super) fn take_back_choice<R: Records>(task: &mut Task<R>, input: usize) -> bool {
    task.has_own_times(input) && take_back_timeless(task, input)
}

#[inline(never)]
fn take_back_timeless<R: Records>(task: &mut Task<R>, input: usize) -> bool {
    let timeless = Supply::Head { timestamp: None };
    let supply = task.supplies.get_mut(input);
    let Some((_, supply)) = supply.filter(|(_, supply)| *supply == timeless) else {
        return false;
    };
    *supply = Supply::Empty { lag: Lag::Unknown };
    true
}

/// Returns the supply of an input. An input that was dry at this tick of the clock is not queried again. A query for
/// each record of the other inputs would cost more than the records.
fn supply<C: Client>(
    task: &mut Task<RecordsOf<C>>,
    input: usize,
    now: Now,
    source: &mut C::Source,
) -> Result<Supply, ClientError> {
    const DRY: Supply = Supply::Empty { lag: Lag::Zero };
    if task.supplies.get(input) == Some(&(now, DRY)) {
        return Ok(DRY);
    }
    fetch::<C>(task, input, source)?;
    let head = task.fetched.get(input).and_then(Records::first);
    if head.is_some() {
        let timestamp = task.head_time(input);
        return Ok(Supply::Head { timestamp });
    }
    let next = task.ahead.as_ref().and_then(|ahead| ahead.next(input));
    let inputs = task.progress.inputs();
    let lag = inputs.get(input).map_or(Lag::Unknown, |input| {
        Lag::of(next.unwrap_or(input.next), source.end(&input.partition))
    });
    Ok(Supply::Empty { lag })
}

/// Fetches records of an input if no fetched record is left.
fn fetch<C: Client>(
    task: &mut Task<RecordsOf<C>>,
    input: usize,
    source: &mut C::Source,
) -> Result<(), ClientError> {
    let fetched = task.fetched.get_mut(input);
    match (fetched, task.progress.inputs().get(input)) {
        (Some(fetched), Some(input)) if fetched.first().is_none() => {
            source.take(&input.partition, BATCH, fetched)
        }
        _ => Ok(()),
    }
}

/// Warns about a task that waits for one of its inputs for longer than configured: without a log line, an unresponsive
/// broker looks like an idle app.
pub(super) fn warn_if_long<C: Client>(shared: &Shared<C>, task: &mut Task<RecordsOf<C>>) {
    const LONG: Duration = Duration::from_secs(30);
    let configured = match shared.spec.max_idle {
        MaxIdle::Never => Duration::ZERO,
        MaxIdle::For(idle) => idle,
    };
    let now = shared.env.about_now();
    let since = *task.waits_since.get_or_insert(now);
    if now.since(since) < configured + LONG {
        return;
    }
    task.waits_since = Some(now);
    for (input, (_, supply)) in task.progress.inputs().iter().zip(&task.supplies) {
        let lag = match supply {
            Supply::Empty { lag } if *lag != Lag::Zero => lag,
            _ => continue,
        };
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, task = %task.progress.task,
            partition = %input.partition, next = %input.next, ?lag,
            "records of a sibling topic wait for this partition: no broker reports that it has \
             none, and none arrived for {} s", LONG.as_secs()
        );
    }
}

/// Handles a record that must not be processed now.
pub(super) fn unexpected<C: Client>(
    shared: &Shared<C>,
    task: &mut Task<RecordsOf<C>>,
    input: usize,
    offset: Offset,
    admission: Result<Admission, OutOfOrder>,
) -> Done {
    match admission {
        Ok(Admission::Process) => Done::Dry,
        Ok(Admission::Repeated) => drop_repeated(shared, task, input, offset),
        Ok(Admission::Rewind(to)) => go_back(shared, task, input, to),
        Ok(Admission::Missing(expected)) => missing(task, input, expected, offset),
        Err(error) => Done::failed(error.into()),
    }
}

/// Drops a record that was processed before.
fn drop_repeated<C: Client>(
    shared: &Shared<C>,
    task: &mut Task<RecordsOf<C>>,
    input: usize,
    offset: Offset,
) -> Done {
    if let Some(input) = task.progress.inputs().get(input) {
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
            %offset, "record delivered twice; dropping the copy"
        );
    }
    task.drop_head(input);
    Done::Next
}

/// Rewinds again, because the first record after a rewind differs from the one before it.
fn go_back<C: Client>(
    shared: &Shared<C>,
    task: &mut Task<RecordsOf<C>>,
    input: usize,
    to: Offset,
) -> Done {
    let mut seeks = task.rewind(input);
    task.readiness = Readiness::Rewinding;
    let Some(input) = task.progress.inputs().get(input) else {
        return Done::Dry;
    };
    seeks.push((input.partition.clone(), to));
    tracing::warn!(
        app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
        offset = %to, "unexpected record after a rewind; seeking again"
    );
    Done::Rewind(seeks)
}

/// Returns the missing record, if the first record after each rewind is later than the one before it.
fn missing<R: Records>(task: &Task<R>, input: usize, expected: Offset, got: Offset) -> Done {
    let input = task.progress.inputs().get(input);
    input.map_or(Done::Dry, |input| {
        Done::Missing(MissingRecord {
            partition: input.partition.clone(),
            expected,
            got,
        })
    })
}
