//! Starts one thread per worker, and collects the results.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eos_protocol::state::Family;
use eos_protocol::{InstanceId, MaxIdle, Stage, WorkerId};
use eos_state::CacheMemory;
use tokio::sync::oneshot;

use super::app_state::AppState;
use super::books::books;
use super::chores::{Chore, Chores};
use super::clock::real_world;
use super::features;
use super::globals;
use super::handle::{Handle, Running};
#[cfg(feature = "rocksdb")]
use super::left_over;
use super::membership::protocol;
use super::observer;
#[cfg(feature = "rocksdb")]
use super::on_disk::OnDisk;
use super::preflight::{Partitions, preflight};
use super::purging;
use super::slot::{Slot, default_state_dir};
use super::supervise::{Crew, Done, Supervisor};
use super::watch::{Watch, Watched};
use crate::async_calls::CallRuntime;
use crate::boundary::Ledgered;
use crate::client::Client;
use crate::config::Settings;
use crate::error::Error;
use crate::failpoints::Failpoints;
use crate::global::GlobalTables;
use crate::metrics::{Count, Meters, WorkerMeter};
#[cfg(feature = "prometheus")]
use crate::metrics::{Endpoint, Serving};
use crate::topology::{Purpose, Topology};
use crate::views::{StopsViews, ViewBoard, Viewer};
use crate::worker::{
    Env, Home, InMemory, PauseBoard, PurgeQueue, StateSpec, Step, StopMode, Worker, WorkerSpec,
};

/// The time that a stop waits for jobs beside the workers. A purge without a response from brokers gives up by itself a
/// little later.
const CHORES: Duration = Duration::from_secs(5);

/// Checks the cluster, takes a slot, and starts the workers.
pub(crate) fn start<C>(
    settings: Settings,
    topology: Arc<Topology>,
    client: C,
    bootstrap: &str,
) -> Result<Running, Error>
where
    C: Client + Send + Sync + 'static,
{
    let has_state = !topology.stores().is_empty() || !topology.globals().is_empty();
    features::BUILT.check(&settings, has_state)?;
    #[cfg(feature = "prometheus")]
    let endpoint = open_endpoint(&settings)?;
    let root = settings.state_dir.clone().unwrap_or_else(default_state_dir);
    let slot = Slot::take(&root, &settings.app, settings.slot)?;
    tell_settings(&settings);
    let since = Instant::now();
    let partitions = preflight(&client, &topology, &settings, bootstrap)?;
    tracing::info!(
        app = %settings.app, instance = %slot.instance, slot = %slot.path.display(),
        workers = settings.workers, guarantee = ?settings.guarantee, "starting"
    );
    for warning in topology.warnings() {
        tracing::warn!(app = %settings.app, "{warning}");
    }
    let before = slot.note_workers(settings.workers)?;
    if settings.static_member() && before > settings.workers {
        tracing::info!(
            app = %settings.app, before, workers = settings.workers,
            "fewer workers than before; the partitions of the missing ones are reassigned after \
             the session timeout"
        );
    }

    let mut env = real_world();
    if topology.has_calls() {
        let runtime = CallRuntime::start().map_err(Error::Thread)?;
        env = env.with_executors(runtime.executors());
    }
    let meters: Vec<_> = (0..settings.workers)
        .map(|n| Arc::new(WorkerMeter::new(WorkerId(n))))
        .collect();
    let pauses = Arc::new(PauseBoard::new(env.entropy()));
    let (globals, global_meters) = (globals::tables_of(&topology), globals::meters_of(&topology));
    let views = Arc::new(ViewBoard::new(settings.workers, partitions.inputs.clone()));
    let handle = Handle::new(
        settings.app.clone(),
        env.clone(),
        Meters {
            workers: meters.clone(),
            globals: global_meters.clone(),
            ledger: topology.ledger().cloned(),
        },
        Arc::clone(&pauses),
        Viewer::new(Arc::clone(&topology), Arc::clone(&views), env.clone()),
    );
    #[cfg(feature = "prometheus")]
    let serving = serve(endpoint, &handle)?;
    let state = state_spec(&settings, &slot, &partitions, &topology);
    let purge_queue = Arc::new(PurgeQueue::default());
    let workers: Vec<Recruit> = (0..settings.workers)
        .zip(meters)
        .map(|(n, meter)| Recruit {
            spec: worker_spec(
                &settings,
                &slot.instance,
                WorkerId(n),
                &partitions,
                topology.stages(),
                state.clone(),
                Shared {
                    purge_queue: Arc::clone(&purge_queue),
                    pauses: Arc::clone(&pauses),
                    globals: Arc::clone(&globals),
                    views: Arc::clone(&views),
                },
            ),
            meter,
        })
        .collect();
    let books = books(&topology, &settings, &partitions, env.entropy(), since)?;
    let client = Arc::new(Ledgered::new(Arc::new(client), books));
    let reader = globals::Beginning {
        settings: &settings,
        instance: &slot.instance,
        state: &state,
        env: &env,
        topology: &topology,
        shared: globals,
        meters: global_meters,
    };
    let reader = reader.start(partitions, &client, &handle)?;
    #[allow(
        unused_mut,
        reason = "without databases on disk there is nothing to add"
    )]
    let mut chores = chores(&settings, &topology, &client, &purge_queue);
    #[cfg(feature = "rocksdb")]
    if !topology.stores().is_empty() {
        let (app, delay) = (settings.app.clone(), settings.cleanup_delay);
        let (slot, handle) = (slot.path.clone(), handle.clone());
        chores.push(left_over::chore(app, slot, delay, handle, env.clone()));
    }
    let chores = Chores::start(chores).map_err(Error::Thread)?;
    let observers = observer::chores(&settings.app, &handle);
    let observers = Chores::start(observers).map_err(Error::Thread)?;
    let limits = settings.limits();
    let crew = Workers {
        recruits: workers,
        env,
        topology,
        client,
        asked: handle.clone(),
        faults: Failpoints::here(),
    };
    let count = usize::from(settings.workers);
    let supervisor =
        Supervisor::start(crew, count, limits.commit + limits.abort).map_err(Error::Thread)?;

    let (ended, on_end) = oneshot::channel();
    let (asked, app) = (handle.clone(), settings.app.clone());
    std::thread::Builder::new()
        .name("eos-supervisor".into())
        .spawn(move || {
            let _stops = StopsViews(views);
            let end = supervisor.run();
            let end = end.and(globals::end(reader, CHORES));
            // The chores use the slot and the app's name. Once the slot is free, both may belong to another process.
            if !chores.stop(CHORES) {
                tracing::warn!(
                    %app, waited_s = CHORES.as_secs(),
                    "a background job did not end in time; abandoning it"
                );
            }
            // A listener may block.
            let _in_time = observers.stop(CHORES);
            let metrics = asked.metrics();
            let totals = metrics.totals;
            let ledger = metrics.ledger.map(|it| it.totals);
            let refused = ledger.map(|it| it.skipped + it.dead_letters);
            tracing::info!(
                %app,
                records_in = totals.records_in,
                records_out = totals.records_out,
                skipped = totals.skipped,
                dead_letters = totals.dead_letters,
                refused,
                failed = end.is_err(),
                "stopped"
            );
            // The slot is free only when no worker uses its ids any more.
            match (&end, asked.asked()) {
                (Ok(()), Some(StopMode::Leave)) => slot.leave(),
                _ => drop(slot),
            }
            asked.observed().enter(AppState::Stopped);
            let _receiver_may_have_ended = ended.send(end);
        })
        .map_err(Error::Thread)?;
    Ok(Running {
        handle,
        ended: Some(on_end),
        #[cfg(feature = "prometheus")]
        _serving: serving,
    })
}

/// Logs the settings before the first connection, because they may be the reason for an outage.
fn tell_settings(settings: &Settings) {
    for variable in &settings.ignored {
        tracing::warn!(app = %settings.app, "unknown property {variable}; ignoring it");
    }
    tracing::info!(app = %settings.app, properties = %settings.told(), "configured");
}

/// The parts of a new worker.
struct Recruit {
    spec: WorkerSpec,
    meter: Arc<WorkerMeter>,
}

/// The app's workers, one thread each.
struct Workers<C> {
    recruits: Vec<Recruit>,
    env: Env,
    topology: Arc<Topology>,
    client: Arc<Ledgered<C>>,
    asked: Handle,
    faults: Failpoints,
}

impl<C> Crew for Workers<C>
where
    C: Client + Send + Sync + 'static,
{
    fn spawn(
        &mut self,
        worker: usize,
        watch: Arc<Watch>,
        done: Done,
    ) -> io::Result<JoinHandle<Result<(), Error>>> {
        let recruit = self.recruits.get(worker).ok_or(io::ErrorKind::NotFound)?;
        let (spec, meter) = (recruit.spec.clone(), Arc::clone(&recruit.meter));
        let (env, topology) = (self.env.clone(), Arc::clone(&self.topology));
        let client = Arc::new(self.client.of_worker());
        let client = Arc::new(Watched::new(&client, &watch));
        let (asked, faults) = (self.asked.clone(), self.faults.clone());
        std::thread::Builder::new()
            .name(format!("eos-worker-{worker}"))
            .spawn(move || {
                let _done = done;
                let _entered = faults.enter();
                let patience = stop_deadline(&spec);
                let body = || -> Result<(), Error> {
                    let meter = Arc::clone(&meter);
                    let worker = Worker::new(spec, env, topology, client, meter)?;
                    run_worker(worker, &asked, &watch, patience)
                };
                let end = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Gone));
                if !watch.is_abandoned() {
                    meter.ended();
                }
                end
            })
    }

    fn stop(&mut self) {
        self.asked.stop(StopMode::Restart);
    }

    fn is_stopping(&self) -> bool {
        self.asked.asked().is_some()
    }

    fn abandoned(&mut self, worker: usize) {
        if let Some(recruit) = self.recruits.get(worker) {
            recruit.meter.count(Count::Abandoned, 1);
        }
    }
}

/// Binds the address first: an unavailable address is an error of the program's start.
#[cfg(feature = "prometheus")]
fn open_endpoint(settings: &Settings) -> Result<Option<Endpoint>, Error> {
    let address = settings.metrics_at.as_deref();
    Ok(address.map(Endpoint::bind).transpose()?)
}

#[cfg(feature = "prometheus")]
fn serve(endpoint: Option<Endpoint>, handle: &Handle) -> Result<Option<Serving>, Error> {
    let Some(endpoint) = endpoint else {
        return Ok(None);
    };
    let handle = handle.clone();
    let serving = endpoint.serve(move || handle.metrics().to_prometheus());
    serving.map(Some).map_err(Error::Thread)
}

/// Returns the deadline of a stop: the time of a commit and an abort, and of joining and leaving the group. See
/// `Worker::stop`.
fn stop_deadline(spec: &WorkerSpec) -> Duration {
    spec.limits.commit + spec.limits.abort + Duration::from_secs(20)
}

/// The parts that the workers of a process share.
pub(super) struct Shared {
    pub(super) purge_queue: Arc<PurgeQueue>,
    pub(super) pauses: Arc<PauseBoard>,
    pub(super) globals: Arc<GlobalTables>,
    pub(super) views: Arc<ViewBoard>,
}

pub(super) fn worker_spec(
    settings: &Settings,
    instance: &InstanceId,
    id: WorkerId,
    partitions: &Partitions,
    stages: &[Stage],
    state: StateSpec,
    shared: Shared,
) -> WorkerSpec {
    WorkerSpec {
        app: settings.app.clone(),
        id,
        identity: id.identity(&settings.app, instance),
        static_member: settings.static_member(),
        guarantee: settings.guarantee,
        policy: settings.policy,
        max_idle: settings.max_task_idle.map_or(MaxIdle::Never, MaxIdle::For),
        most_ahead: settings.most_ahead,
        limits: settings.limits(),
        first_start: settings.first_start,
        accepted_layout: settings.accepted().ok().flatten(),
        transaction_timeout: settings.transaction_timeout,
        protocol: protocol(settings, instance, id, stages),
        prefetch: prefetch(partitions.inputs.values().sum()),
        revoke_deadline: settings.revoke_deadline(),
        offsets_deadline: settings.offsets_deadline(),
        output_partitions: partitions.outputs.clone(),
        output_limits: partitions.limits.clone(),
        input_partitions: partitions.inputs.clone(),
        compacted: partitions.compacted.clone(),
        state,
        purge_queue: shared.purge_queue,
        pauses: shared.pauses,
        globals: shared.globals,
        views: shared.views,
    }
}

/// Returns the periodic jobs beside the workers.
fn chores<C>(
    settings: &Settings,
    topology: &Topology,
    client: &Arc<C>,
    purge_queue: &Arc<PurgeQueue>,
) -> Vec<Chore>
where
    C: Client + Send + Sync + 'static,
{
    let purges = topology.internals().iter().any(|internal| {
        matches!(
            internal.purpose,
            Purpose::Repartition | Purpose::ForeignJoin | Purpose::Changelog(_, Family::Windowed)
        )
    });
    let mut chores = Vec::new();
    if purges {
        let (client, purge_queue) = (Arc::clone(client), Arc::clone(purge_queue));
        let every = settings.purge_interval;
        chores.push(purging::chore(
            settings.app.clone(),
            client,
            purge_queue,
            every,
        ));
    }
    chores
}

/// Returns the settings of tasks with stores, the same for all workers, which share the memory.
fn state_spec(
    settings: &Settings,
    slot: &Slot,
    partitions: &Partitions,
    topology: &Topology,
) -> StateSpec {
    let cluster = partitions.cluster.clone().unwrap_or_default();
    let (home, cache) = home(settings, slot, &cluster, topology);
    state_in(home, cache, settings, partitions, topology)
}

/// Returns the same settings with the caller's databases and cache.
pub(super) fn state_in(
    home: Arc<dyn Home>,
    cache: CacheMemory,
    settings: &Settings,
    partitions: &Partitions,
    topology: &Topology,
) -> StateSpec {
    let outputs = topology.outputs().iter().zip(&partitions.delete_retention);
    let retention = outputs.filter_map(|(output, time)| Some((output.name.clone(), (*time)?)));
    StateSpec {
        home,
        cache,
        cluster: partitions.cluster.clone().unwrap_or_default(),
        topic_ids: partitions.ids.clone(),
        accepted_changelogs: settings.accepted_changelogs.clone(),
        delete_retention: retention.collect(),
        // A dead peer may block a changelog until its transaction times out.
        patience: settings.offsets_deadline().max(Duration::from_secs(60)),
        // Restored records bypass the write buffers, which may use a third of the memory.
        restore_bytes: settings.state_memory / 4 / usize::from(settings.workers).max(1),
        ..StateSpec::default()
    }
}

#[cfg(feature = "rocksdb")]
fn home(
    settings: &Settings,
    slot: &Slot,
    cluster: &str,
    topology: &Topology,
) -> (Arc<dyn Home>, CacheMemory) {
    if topology.stores().is_empty() && topology.globals().is_empty() {
        return (Arc::new(InMemory), CacheMemory::default());
    }
    // A lookup in the cache is four times as fast as one in a database's memory. Overlapping windows have one row each per
    // key, so the cache gets a quarter. An eighth is left for RocksDB's uncounted memory: buffers of flushes and
    // compactions, and unused space between blocks.
    let cache = settings.state_memory / 4;
    let uncounted = settings.state_memory / 8;
    let home = OnDisk::new(
        slot.path.clone(),
        settings.app.clone(),
        cluster.to_owned(),
        settings.state_memory - cache - uncounted,
    );
    (Arc::new(home), CacheMemory::new(cache))
}

#[cfg(not(feature = "rocksdb"))]
fn home(_: &Settings, _: &Slot, _: &str, _: &Topology) -> (Arc<dyn Home>, CacheMemory) {
    (Arc::new(InMemory), CacheMemory::default())
}

/// Returns the limit of prefetched keys and values of one partition in bytes, for a worker that may own all partitions.
/// librdkafka needs some 450 bytes beside each record, so small records take a multiple of their size. Responses to
/// earlier fetch requests can exceed the limit.
fn prefetch(partitions: u32) -> usize {
    const WORKER: usize = 24 << 20;
    let partitions = usize::try_from(partitions).unwrap_or(usize::MAX).max(1);
    (WORKER / partitions).clamp(256 << 10, 4 << 20)
}

fn run_worker<C: Client>(
    mut worker: Worker<C>,
    handle: &Handle,
    watch: &Watch,
    patience: Duration,
) -> Result<(), Error> {
    let mut stopping_since: Option<Instant> = None;
    loop {
        if watch.is_abandoned() {
            return Err(Error::Gone);
        }
        if stopping_since.is_none()
            && let Some(mode) = handle.asked()
        {
            worker.stop(mode);
            stopping_since = Some(Instant::now());
        }
        if stopping_since.is_some_and(|since| since.elapsed() > patience) {
            return Err(Error::StopTimedOut {
                waited_s: patience.as_secs(),
            });
        }
        match worker.step()? {
            Step::Busy => {}
            Step::Idle(nap) => worker.wait(nap),
            Step::Stopped => return Ok(()),
        }
    }
}
