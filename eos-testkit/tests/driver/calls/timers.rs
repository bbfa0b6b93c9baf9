//! Timers behind calls.

use eos_core::timers::Due;
use eos_core::{Timer, Timestamp};

use super::*;

/// Each record sets the moment of its key, and each moment sets the next one.
fn app(service: &Service) -> App {
    let mut app = App::new("a");
    let timer = app.timer(&Timer::<String>::event_time("timer"));
    let service = service.clone();
    app.source(&input())
        .map_async_record("serve", Calls::at_once(4), move |call| {
            service.clone().serve(call)
        })
        .on_timer(&timer, move |ctx, due: Due<String>| {
            ctx.timer(&timer).set(&due.key, Timestamp(due.at.0 + 60))?;
            ctx.forward(due.key, due.at.0.to_string())
        })
        .process_values(move |ctx, record| {
            ctx.timer(&timer)
                .set_in(record.key, Duration::from_millis(60))?;
            ctx.forward(record.value)
        })
        .to(&output());
    app
}

/// The calls of the second record run again after the moments before it: once, and with the same id.
#[test]
fn the_calls_of_a_record_run_again_after_the_moments_before_it() {
    let scenario = |driver: &mut TestDriver| {
        for (value, at) in [("a", 0), ("b", 330), ("c", 331)] {
            driver.pipe_at(&input(), "k", value, Timestamp(at));
        }
        values(driver)
    };
    let service = Service::default();
    let found = scenario(&mut TestDriver::new(app(&service)));
    assert_eq!(found, ["A", "60", "120", "180", "240", "300", "B", "C"]);
    service.seen(|it| {
        assert_eq!(it.begun, ["a", "b", "b", "c"]);
        assert_eq!(it.ids.len(), 3);
    });
    crash_everywhere(|| TestDriver::new(app(&Service::default())), scenario);
}
