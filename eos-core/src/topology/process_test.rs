//! What processors are told, and what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eos_protocol::TaskId;

use super::tests::{Bench, text};
use crate::{Ctx, Failure, OnDiscard, Output, Processor, Record};

/// Emits how many records it has seen.
struct Count {
    out: Output<String, String>,
    seen: usize,
    keeps: bool,
    closed: Arc<AtomicUsize>,
}

impl Processor<String, String> for Count {
    fn init(&mut self, _: TaskId) -> Result<(), Failure> {
        self.seen = 100;
        Ok(())
    }

    fn process(&mut self, ctx: &Ctx<'_>, record: Record<String, String>) -> Result<(), Failure> {
        self.seen += 1;
        if record.value == "fail" {
            return Err("as asked".into());
        }
        ctx.emit(&self.out, record.key, self.seen.to_string())
    }

    fn on_discard(&mut self) -> OnDiscard {
        self.seen -= 1;
        if self.keeps {
            OnDiscard::Keep
        } else {
            OnDiscard::Rebuild
        }
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting(keeps: bool, closed: &Arc<AtomicUsize>) -> Bench {
    Bench::new(|app| {
        let (out, closed) = (app.output(&text("o")), Arc::clone(closed));
        let make = move || Count {
            out,
            seen: 0,
            keeps,
            closed: Arc::clone(&closed),
        };
        let (left, right) = (app.source(&text("t")), app.source(&text("t")));
        left.union(right.map(|v| v)).process_with(make);
    })
}

#[test]
fn sources_of_one_topic_share_the_node_that_they_merge_into() {
    let mut bench = counting(false, &Arc::default());
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
}

#[test]
fn a_processor_is_rebuilt_when_its_records_do_not_count() {
    let mut bench = counting(false, &Arc::default());
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
    bench.chains.committed();
    bench.chains.discard();
    bench.check(0, "k=v", &["o:k=103", "o:k=104"]);
    bench.chains.discard();
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
    assert!(bench.run(0, "k=fail").is_err());
    bench.chains.discard();
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
}

#[test]
fn a_processor_that_takes_records_back_is_kept() {
    let mut bench = counting(true, &Arc::default());
    assert!(bench.run(0, "k=fail").is_err());
    bench.chains.discard();
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
}

#[test]
fn a_processor_is_closed_once_when_its_task_goes_away() {
    let closed = Arc::default();
    drop(counting(false, &closed));
    assert_eq!(closed.load(Ordering::Relaxed), 0, "none was made");
    let mut bench = counting(false, &closed);
    bench.check(0, "k=v", &["o:k=101", "o:k=102"]);
    bench.chains.close();
    drop(bench);
    assert_eq!(closed.load(Ordering::Relaxed), 1);
}

struct Panics;
impl Processor<String, String> for Panics {
    fn process(&mut self, _: &Ctx<'_>, _: Record<String, String>) -> Result<(), Failure> {
        Ok(())
    }
    fn on_discard(&mut self) -> OnDiscard {
        panic!("on_discard");
    }
    fn close(&mut self) {
        panic!("close");
    }
}

#[test]
fn a_processor_that_panics_outside_of_a_record_ends_nobody_else() {
    let mut bench = Bench::new(|app| app.source(&text("t")).process_with(|| Panics));
    bench.check(0, "k=v", &[]);
    bench.chains.discard();
    bench.check(0, "k=v", &[]);
    bench.chains.close();
}
