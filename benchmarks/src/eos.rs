//! The work as a user of eos writes it.

use anyhow::Result;
use eos_core::{App, Guarantee, Topic};

use crate::side::{Side, Task};
use crate::work::{View, Work};

/// Works until it is asked to stop.
pub(crate) fn run(side: Side, task: &Task) -> Result<()> {
    let mut app = App::new(&task.group)
        .static_membership(false)
        .state_dir(&task.state)
        // The Java client checks them unless told otherwise, librdkafka does not: all sides do here.
        .set("check.crcs", true);
    if side != Side::EosDefault {
        app = app
            .commit_interval(task.commit_interval)
            .set("commit.pace", "fixed");
    }
    if side == Side::EosAtLeastOnce {
        app = app.guarantee(Guarantee::AtLeastOnce);
    }
    match task.work {
        Work::Pass => app
            .source(&Topic::<Vec<u8>, Vec<u8>>::plain(&task.input))
            .to(&Topic::plain(&task.output)),
        Work::Map => {
            let mut views = app.source(&Topic::<Vec<u8>, View>::json(&task.input));
            if let Some(sibling) = &task.sibling {
                views = views.merge_by_time(app.source(&Topic::json(sibling)));
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
    }
    let _without = match side {
        Side::EosUnguarded => Some(without_quarantine()?),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(app.run(&task.bootstrap))?;
    Ok(())
}

/// Apps that are started while this is held go without.
#[cfg(feature = "failpoints")]
fn without_quarantine() -> Result<eos_core::failpoints::Entered> {
    Ok(eos_core::failpoints::Failpoints::parse("", "quarantine")?.enter())
}

#[cfg(not(feature = "failpoints"))]
fn without_quarantine() -> Result<()> {
    anyhow::bail!("no defence can be taken away here: build with --features failpoints")
}
