//! Prints the progress of restores, from the log events of the library.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::work::{RESTORED, RESTORING};

/// Prints the number of records read so far after each task, and the time since the restore of the first task began.
#[derive(Debug, Default)]
pub(crate) struct Restoring(Mutex<(Option<Instant>, u64)>);

impl<S: Subscriber> Layer<S> for Restoring {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let (began, records) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.message.as_str() {
            "restoring state" => {
                began.get_or_insert_with(Instant::now);
                println!("{RESTORING}{}", said.task);
            }
            "changelog read" => {
                *records += said.records;
                let took = began.get_or_insert_with(Instant::now).elapsed();
                println!(
                    "{RESTORED}{records} {:.1} {}",
                    took.as_secs_f64() * 1e3,
                    said.task
                );
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Said {
    message: String,
    task: String,
    records: u64,
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "records" {
            self.records = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "task" => self.task = format!("{value:?}"),
            _ => {}
        }
    }
}
