//! The works of the benchmarks as eos apps.

use anyhow::Result;
use eos_core::metrics::Metrics;
use eos_core::metrics::Phase;
use eos_core::run::StopMode;
use eos_core::{App, Failure, Guarantee, KeyValueStore, Topic};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::dedup;
use crate::joined;
use crate::pending;
use crate::postgres::views;
use crate::restoring::Restoring;
use crate::side::{Side, Task};
use crate::stats::rounded;
use crate::windowed;
use crate::work::{COUNTS, MEMORY, PHASES, View, Work};

/// Runs the work until the process receives a stop signal.
pub(crate) fn run(side: Side, task: &Task) -> Result<()> {
    let mut app = App::new(&task.group);
    app.set("static.membership", task.stays)
        .state_dir(&task.state)
        // The Java client checks CRCs by default, librdkafka does not. Here all sides check them.
        .set("check.crcs", true);
    if side != Side::EosDefault {
        app.commit_interval(task.commit_interval)
            .set("commit.pace", "fixed");
    }
    if side == Side::EosAtLeastOnce {
        app.guarantee(Guarantee::AtLeastOnce);
    }
    declare(&mut app, task)?;
    let _without = match side {
        Side::EosUnguarded => Some(without_quarantine()?),
        _ => None,
    };
    if task.work.keeps_state() {
        let restores = Targets::new().with_target("eos_core::worker::restore", LevelFilter::DEBUG);
        tracing_subscriber::registry()
            .with(Restoring::default().with_filter(restores))
            .init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut asked = signal(SignalKind::terminate())?;
        let mut running = app.start_blocking(&task.bootstrap)?;
        let handle = running.handle();
        tokio::select! {
            ended = running.ended() => ended?,
            _ = asked.recv() => {
                handle.stop(StopMode::Restart);
                running.ended().await?;
            }
        }
        println!("{PHASES}{}", phases(&handle.metrics()));
        Ok(())
    })
}

/// Adds the topology of the work to the app.
fn declare(app: &mut App, task: &Task) -> Result<()> {
    match task.work {
        Work::Pass => app
            .source(&Topic::<Vec<u8>, Vec<u8>>::plain(&task.input))
            .to(&Topic::plain(&task.output)),
        Work::Count | Work::CountPerCommit => {
            let counts = app
                .source(&Topic::<Vec<u8>, Vec<u8>>::plain(&task.input))
                .group_by_key()
                .count(&KeyValueStore::plain(COUNTS));
            let counts = match task.work {
                Work::CountPerCommit => counts.emit_per_commit(),
                _ => counts,
            };
            counts.to(&Topic::plain(&task.output));
        }
        Work::Dedup => dedup::declare(app, task),
        Work::Stores => {
            app.set("state.memory.bytes", MEMORY);
            let stores = ["first", "second", "third"]
                .map(|name| app.store(&KeyValueStore::<Vec<u8>, Vec<u8>>::plain(name)));
            let mut records = app.source(&Topic::<Vec<u8>, Vec<u8>>::plain(&task.input));
            for store in &stores {
                records = records.with_store(store);
            }
            records.for_each(move |ctx, record| {
                let value = [7; 100].to_vec();
                for store in &stores {
                    ctx.store(store).put(&record.key, &value)?;
                }
                Ok::<_, Failure>(())
            });
        }
        Work::Map => {
            let mut views = app.source(&Topic::<Vec<u8>, View>::json(&task.input));
            if let Some(sibling) = &task.sibling {
                views = views.merge(app.source(&Topic::json(sibling)));
            }
            if !task.pause.is_zero() {
                let pause = task.pause;
                views = views.map(move |view| {
                    std::thread::sleep(pause);
                    view
                });
            }
            views
                .map(View::with_slow)
                .filter(View::is_kept)
                .to(&Topic::json(&task.output));
        }
        Work::Tumbling | Work::Hopping | Work::Sessions | Work::OnClose => {
            windowed::declare(app, task);
        }
        Work::Timers | Work::OpenSessions => pending::declare(app, task),
        Work::StreamTable
        | Work::Inner
        | Work::Left
        | Work::TableTable
        | Work::Foreign
        | Work::Orders
        | Work::HotKey
        | Work::ColdKeys => joined::declare(app, task),
        Work::Insert | Work::Upsert | Work::Statements => views::declare(app, task)?,
    }
    Ok(())
}

/// Returns the mean duration of each phase of a commit over the whole run, in milliseconds.
fn phases(metrics: &Metrics) -> Value {
    let times = &metrics.totals.commit_times;
    let ms = |phase| rounded(times.phase(phase).mean().as_secs_f64() * 1e3);
    let phases = Phase::ALL.map(|phase| (phase.name().to_owned(), ms(phase).into()));
    let commits = metrics.totals.commits.total();
    let commits = ("commits".to_owned(), commits.into());
    Value::Object(phases.into_iter().chain([commits]).collect())
}

/// Disables the quarantine of apps that are started while the returned guard is held.
#[cfg(feature = "failpoints")]
fn without_quarantine() -> Result<eos_core::spi::failpoints::Entered> {
    Ok(eos_core::spi::failpoints::Failpoints::parse("", "quarantine")?.enter())
}

#[cfg(not(feature = "failpoints"))]
fn without_quarantine() -> Result<()> {
    anyhow::bail!("no defence can be taken away here: build with --features failpoints")
}
