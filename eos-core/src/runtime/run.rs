//! Starts the workers, one thread each, and gathers how they ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eos_protocol::{MaxIdle, WorkerId};
use tokio::sync::oneshot;

use super::clock::real_world;
use super::handle::{Handle, Running};
use super::preflight::{Partitions, preflight};
use super::slot::{Slot, default_state_dir};
use crate::client::{Client, GroupProtocol};
use crate::config::{Protocol, Settings};
use crate::error::Error;
use crate::failpoints::Failpoints;
use crate::metrics::WorkerMeter;
#[cfg(feature = "prometheus")]
use crate::metrics::{Endpoint, Serving};
use crate::topology::Topology;
use crate::worker::{Step, StopMode, Worker, WorkerSpec};

/// Checks what the cluster says, takes a slot, and starts the workers.
pub(crate) fn start<C>(
    settings: Settings,
    topology: Arc<Topology>,
    client: C,
    bootstrap: &str,
) -> Result<Running, Error>
where
    C: Client + Send + Sync + 'static,
{
    #[cfg(feature = "prometheus")]
    let endpoint = open_endpoint(&settings)?;
    let root = settings.state_dir.clone().unwrap_or_else(default_state_dir);
    let slot = Slot::take(&root, &settings.app, settings.slot)?;
    let partitions = preflight(&client, &topology, &settings, bootstrap)?;
    tracing::info!(
        app = %settings.app, instance = %slot.instance, slot = %slot.path.display(),
        workers = settings.workers, guarantee = ?settings.guarantee, "starting"
    );

    let env = real_world();
    let meters: Vec<_> = (0..settings.workers)
        .map(|n| Arc::new(WorkerMeter::new(WorkerId(n))))
        .collect();
    let handle = Handle::new(settings.app.clone(), env.clone(), meters.clone());
    #[cfg(feature = "prometheus")]
    let serving = serve(endpoint, &handle)?;
    let client = Arc::new(client);
    let mut threads = Vec::new();
    for (n, meter) in (0..settings.workers).zip(meters) {
        let spec = worker_spec(&settings, &slot, WorkerId(n), &partitions);
        let (topology, client) = (Arc::clone(&topology), Arc::clone(&client));
        let (env, asked) = (env.clone(), handle.clone());
        let faults = Failpoints::here();
        let thread = std::thread::Builder::new()
            .name(format!("eos-worker-{n}"))
            .spawn(move || {
                let _entered = faults.enter();
                let patience = stop_deadline(&spec);
                let body = || -> Result<(), Error> {
                    let meter = Arc::clone(&meter);
                    let worker = Worker::new(spec, env, topology, client, meter)?;
                    run_worker(worker, &asked, patience)
                };
                let end = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Gone));
                meter.ended();
                if end.is_err() {
                    // The others stop too: the process is what gets restarted.
                    asked.stop(StopMode::Restart);
                }
                end
            })
            .map_err(Error::Thread);
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                handle.stop(StopMode::Restart);
                return Err(error);
            }
        }
    }

    let (ended, on_end) = oneshot::channel();
    let asked = handle.clone();
    std::thread::Builder::new()
        .name("eos-ending".into())
        .spawn(move || {
            let ends = threads
                .into_iter()
                .map(|t| t.join().unwrap_or(Err(Error::Gone)));
            let ends: Vec<Result<(), Error>> = ends.collect();
            let end = ends.into_iter().find(Result::is_err).unwrap_or(Ok(()));
            // The slot is free once no worker runs under its ids any more.
            match (&end, asked.asked()) {
                (Ok(()), Some(StopMode::Leave)) => slot.leave(),
                _ => drop(slot),
            }
            let _nobody_waits = ended.send(end);
        })
        .map_err(Error::Thread)?;
    Ok(Running {
        handle,
        ended: Some(on_end),
        #[cfg(feature = "prometheus")]
        _serving: serving,
    })
}

/// Before anything else is begun: an address that can't be had is a mistake in the program's start.
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

/// A stop takes as long as a commit and an abort may, and what joining and leaving the group may:
/// see `Worker::stop`.
fn stop_deadline(spec: &WorkerSpec) -> Duration {
    spec.limits.commit + spec.limits.abort + Duration::from_secs(20)
}

fn worker_spec(
    settings: &Settings,
    slot: &Slot,
    id: WorkerId,
    partitions: &Partitions,
) -> WorkerSpec {
    WorkerSpec {
        app: settings.app.clone(),
        id,
        identity: id.identity(&settings.app, &slot.instance),
        static_member: settings.static_member(),
        guarantee: settings.guarantee,
        policy: settings.policy,
        max_idle: settings.max_task_idle.map_or(MaxIdle::Never, MaxIdle::For),
        limits: settings.limits(),
        first_start: settings.first_start,
        accepted_layout: settings.accepted().ok().flatten(),
        transaction_timeout: settings.transaction_timeout,
        protocol: protocol(settings, slot, id),
        prefetch: prefetch(partitions.inputs.values().sum()),
        revoke_deadline: settings.revoke_deadline(),
        offsets_deadline: settings.offsets_deadline(),
        output_partitions: partitions.outputs.clone(),
        output_limits: partitions.limits.clone(),
        input_partitions: partitions.inputs.clone(),
    }
}

/// How many bytes of keys and values one partition may have waiting in a worker that may come to own
/// all of them. librdkafka keeps some 300 bytes beside each record, so what small records take is a
/// multiple of it; and a fetch brings a megabyte of a partition at a time.
fn prefetch(partitions: u32) -> usize {
    const WORKER: usize = 24 << 20;
    let partitions = usize::try_from(partitions).unwrap_or(usize::MAX).max(1);
    (WORKER / partitions).clamp(256 << 10, 4 << 20)
}

fn protocol(settings: &Settings, slot: &Slot, id: WorkerId) -> GroupProtocol {
    match settings.protocol {
        Protocol::Consumer => GroupProtocol::Consumer,
        Protocol::Classic => GroupProtocol::Classic {
            instance_id: settings
                .static_member()
                .then(|| id.identity(&settings.app, &slot.instance).to_string()),
            session_timeout: settings.session_timeout(),
            heartbeat_interval: settings.heartbeat(),
        },
    }
}

fn run_worker<C: Client>(
    mut worker: Worker<C>,
    handle: &Handle,
    patience: Duration,
) -> Result<(), Error> {
    let mut stopping_since: Option<Instant> = None;
    loop {
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
