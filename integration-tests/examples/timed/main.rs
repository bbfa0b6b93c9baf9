//! The app of `tests/kafka/kill_time`, with pipelines of windows, sessions, timers, parked keys, duplicates, joins and
//! tables:
//! `APP=timed PIPELINE=sessions GAP_MS=2000 GRACE_MS=500 cargo run -p integration-tests --example timed --features failpoints`
//!
//! It reads `<APP>-in` and writes results to `<APP>-out`. Late records, dead letters and duplicates go to `<APP>-late`.
//! The timers of the machine's clock write to `<APP>-wall`.

mod joined;

use std::env::var;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use eos_core::codec::{Plain, SessionWindowed, TimeWindowed};
use eos_core::identity::SeenIds;
use eos_core::state::{SessionStore, WindowStore};
use eos_core::windows::{Hopping, Session, Tumbling, Windowed};
use eos_core::{
    App, ErrorPolicy, Failure, PlainTopic, ProcessCtx, Record, Timer, Timestamp, Topic,
};

/// Returns the number in an environment variable.
fn number(name: &str) -> Result<u64> {
    let text = var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().with_context(|| format!("{name}={text}"))
}

/// Returns the duration in an environment variable, given in milliseconds.
fn ms(name: &str) -> Result<Duration> {
    Ok(Duration::from_millis(number(name)?))
}

type Forward<'c> = ProcessCtx<'c, Windowed<String>, u64>;
type Forwarded = Result<(), Failure>;

struct Topics {
    input: PlainTopic<String, String>,
    late: PlainTopic<String, String>,
    output: String,
    wall: PlainTopic<String, String>,
}

impl Topics {
    fn of(app: &str) -> Topics {
        Topics {
            input: Topic::plain(&format!("{app}-in")),
            late: Topic::plain(&format!("{app}-late")),
            output: format!("{app}-out"),
            wall: Topic::plain(&format!("{app}-wall")),
        }
    }

    /// The output of counts in windows of this size.
    fn counts(&self, size: Duration) -> Topic<Windowed<String>, u64, TimeWindowed, Plain> {
        Topic::with(&self.output, TimeWindowed::of(size), Plain)
    }
}

fn sessions(app: &mut App, topics: &Topics) -> Result<()> {
    app.source(&topics.input)
        .group_by_key()
        .windowed_by(Session::gap(ms("GAP_MS")?).grace(ms("GRACE_MS")?))
        .late_to(&topics.late)
        .count(&SessionStore::plain("sessions"))
        .emit_on_close()
        .to(&Topic::with(
            &topics.output,
            SessionWindowed::of(Plain),
            Plain,
        ));
    Ok(())
}

/// A step that forwards each result after `PAUSE_US` microseconds. So kills come between the results.
fn slowly() -> Result<impl Fn(&Forward<'_>, Record<Windowed<String>, u64>) -> Forwarded> {
    let pause = Duration::from_micros(number("PAUSE_US")?);
    Ok(move |ctx: &Forward<'_>, result| {
        thread::sleep(pause);
        ctx.forward_record(result)
    })
}

/// Windows that overlap.
fn hopping(app: &mut App, topics: &Topics) -> Result<()> {
    let size = ms("SIZE_MS")?;
    let windows = Hopping::of(size).every(ms("ADVANCE_MS")?);
    app.source(&topics.input)
        .group_by_key()
        .windowed_by(windows.grace(ms("GRACE_MS")?))
        .late_to(&topics.late)
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .process(slowly()?)
        .to(&topics.counts(size));
    Ok(())
}

/// Tumbling windows.
fn at_once(app: &mut App, topics: &Topics) -> Result<()> {
    let size = ms("SIZE_MS")?;
    app.source(&topics.input)
        .group_by_key()
        .windowed_by(Tumbling::of(size).grace(ms("GRACE_MS")?))
        .late_to(&topics.late)
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .process(slowly()?)
        .to(&topics.counts(size));
    Ok(())
}

/// Tumbling windows that also close while no records arrive.
fn idle(app: &mut App, topics: &Topics) -> Result<()> {
    let size = ms("SIZE_MS")?;
    app.source(&topics.input)
        .close_when_idle(ms("IDLE_MS")?)
        .group_by_key()
        .windowed_by(Tumbling::of(size).grace(ms("GRACE_MS")?))
        .late_to(&topics.late)
        .count(&WindowStore::plain("windows"))
        .emit_on_close()
        .to(&topics.counts(size));
    Ok(())
}

/// A pipeline with a timer of each clock. The value of a record holds two times in milliseconds: one for the timer of
/// event time, and one for the timer of the machine's clock. `-` cancels the first timer, and leaves the second one
/// unchanged. The record is written to the output. The fired timers of event time are written there, too.
fn timers(app: &mut App, topics: &Topics) {
    let event = app.timer(&Timer::<String>::event_time("event"));
    let wall = app.timer(&Timer::<String>::wall_clock("wall"));
    let fired = app.output(&topics.wall);
    app.source(&topics.input)
        .on_timer(&event, |ctx, due| {
            ctx.forward(due.key, format!("due {} {}", due.at.0, due.fired.0))
        })
        .on_timer(&wall, move |ctx, due| {
            ctx.emit(&fired, due.key, format!("due {} {}", due.at.0, due.fired.0))
        })
        .process(move |ctx, record| {
            let moments = record.value.split_once(' ').ok_or("two moments")?;
            let moment = |text: &str| text.parse().map(Timestamp).map_err(Failure::from);
            match moments.0 {
                "-" => ctx.timer(&event).cancel(&record.key)?,
                at => ctx.timer(&event).set(&record.key, moment(at)?)?,
            }
            if moments.1 != "-" {
                ctx.timer(&wall).set(&record.key, moment(moments.1)?)?;
            }
            let time = record.timestamp.ok_or("no time")?;
            ctx.forward(record.key, format!("record {}", time.0))
        })
        .to(&Topic::<String, String>::plain(&topics.output));
}

/// Records that fail are parked with the later records of their key. A record with `never` fails also in its replay,
/// unless `is_cured`.
fn parked(app: &mut App, topics: &Topics, is_cured: bool) {
    let policy = ErrorPolicy::dead_letter(topics.late.name()).in_sequence("parked");
    app.source(&topics.input)
        .on_error(policy)
        .process(move |ctx, record| {
            let is_replayed = ctx.headers().get("eos-replay").is_some();
            let fails = match record.value.split(' ').next_back() {
                Some("bad") => !is_replayed,
                Some("worse") => !is_replayed || fails_at(ctx.offset().get()),
                Some("never") => !is_replayed || !is_cured,
                _ => false,
            };
            match fails {
                true => Err(Failure::from("it fails")),
                false => ctx.forward(record.key, record.value),
            }
        })
        .to(&Topic::<String, String>::plain(&topics.output));
}

/// Returns whether a replayed record fails at this offset. About a third of the offsets fail. A round of the replay may
/// always advance the offset by the same number, so with a test of `offset % 3`, a record could fail forever.
fn fails_at(offset: i64) -> bool {
    let scattered = offset.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    scattered < u64::MAX / 3
}

/// Records with ids, as JSON objects of which the app knows one field.
fn duplicates(app: &mut App, topics: &Topics) -> Result<()> {
    let json = |topic: &str| Topic::<String, serde_json::Value>::json(topic);
    app.source(&json(topics.input.name()))
        .dedup(&SeenIds::fixed("seen", ms("WINDOW_MS")?))
        .duplicates_to(&json(topics.late.name()))
        .by(|record| record["event"].to_string())
        .to(&json(&topics.output));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let name = var("APP")?;
    let (mut app, topics) = (App::new(&name), Topics::of(&name));
    match var("PIPELINE")?.as_str() {
        "sessions" => sessions(&mut app, &topics)?,
        "hopping" => hopping(&mut app, &topics)?,
        "at_once" => at_once(&mut app, &topics)?,
        "idle" => idle(&mut app, &topics)?,
        "timers" => timers(&mut app, &topics),
        "parked" => parked(&mut app, &topics, false),
        "cured" => parked(&mut app, &topics, true),
        "duplicates" => duplicates(&mut app, &topics)?,
        "joins" => joined::streams(&mut app, &topics, &name)?,
        "tables" => joined::tables(&mut app, &topics, &name),
        "foreign" => joined::foreign(&mut app, &topics, &name)?,
        // With this bound, letters that fail again are replayed at once.
        "replay" => {
            let replay = App::replay(topics.late.name()).to(topics.input.name());
            app = replay.until(Timestamp(i64::MAX)).app();
        }
        other => {
            bail!(
                "PIPELINE={other}: sessions, hopping, at_once, idle, timers, parked, cured, replay, duplicates, joins, tables or foreign"
            )
        }
    }
    app.run(&var("EOS_BOOTSTRAP_SERVERS")?).await?;
    Ok(())
}
