//! The calls of processors, and their effects.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eos_protocol::TaskId;

use super::tests::{Bench, text};
use crate::codec::{CodecError, Encode, Encoded, Field, Plain};
use crate::processor::{OnDiscard, ValueProcessor};
use crate::{
    Failure, KeyValueStore, Output, ProcessCtx, Processor, Record, Timestamp, Topic, ValuesCtx,
};

/// Emits the number of its records.
struct Count {
    out: Output<String, String>,
    seen: usize,
    keeps: bool,
    closed: Arc<AtomicUsize>,
}

impl Processor<String, String> for Count {
    type Key = Infallible;
    type Value = Infallible;

    fn init(&mut self, _: TaskId) -> Result<(), Failure> {
        self.seen = 100;
        Ok(())
    }

    fn process(
        &mut self,
        ctx: &ProcessCtx<'_, Infallible, Infallible>,
        record: Record<String, String>,
    ) -> Result<(), Failure> {
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
        left.union(right.map(|v| v)).for_each_with(make);
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
    type Key = Infallible;
    type Value = Infallible;

    fn process(
        &mut self,
        _: &ProcessCtx<'_, Infallible, Infallible>,
        _: Record<String, String>,
    ) -> Result<(), Failure> {
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
fn a_processor_that_panics_outside_of_a_record_ends_no_other() {
    let mut bench = Bench::new(|app| app.source(&text("t")).for_each_with(|| Panics));
    bench.check(0, "k=v", &[]);
    bench.chains.discard();
    bench.check(0, "k=v", &[]);
    bench.chains.close();
}

#[test]
fn a_closure_forwards_any_number_of_records_of_other_types() {
    let mut bench = Bench::new(|app| {
        app.source(&text("t"))
            .process(|ctx, line| {
                for word in line.value.split(' ') {
                    ctx.forward(word.to_owned(), word.len() as u64)?;
                }
                Ok(())
            })
            .map(|n| n.to_string())
            .to(&text("out"));
    });
    bench.check(0, "k=a bc", &["out:a=1", "out:bc=2"]);
    bench.check(0, "k=def", &["out:def=3"]);
}

#[test]
fn values_are_forwarded_under_the_records_key() {
    let mut bench = Bench::new(|app| {
        app.source(&text("t"))
            .process_values(|ctx, line| {
                ctx.forward(format!("{} 1", line.value))?;
                ctx.forward_record(line.map(|value| value + " 2"))
            })
            .to(&text("out"));
    });
    bench.check(0, "k=a", &["out:k=a 1", "out:k=a 2"]);
    let mut other = Bench::new(|app| {
        app.source(&text("t"))
            .process_values(|ctx, line| {
                let _ignored = ctx.forward_record(Record::new(&"k".to_owned(), line.value));
            })
            .to(&text("out"));
    });
    let fault = other.run(0, "k=a").unwrap_err().to_string();
    assert!(fault.contains("a key that is not the record's"), "{fault}");
}

#[test]
fn a_step_has_the_time_and_the_headers_of_the_record_that_it_was_given() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let mut bench = Bench::new(move |app| {
        app.source(&text("t"))
            .process_values(|ctx, line| {
                ctx.forward_record(line.header("checked", "yes").at(Timestamp(99)))
            })
            .process(|ctx, line| ctx.forward(line.key, line.value))
            .for_each(move |ctx, line| {
                let checked = ctx.headers().get("checked").map(<[u8]>::to_vec);
                let source = ctx.source();
                let times = (ctx.timestamp(), line.timestamp, source.timestamp);
                log.lock()
                    .unwrap()
                    .push((checked, times, source.headers.len()));
            });
    });
    bench.check(0, "k=a", &[]);
    let (new, old) = (Some(Timestamp(99)), Some(Timestamp(17)));
    assert_eq!(
        *seen.lock().unwrap(),
        [(Some(b"yes".to_vec()), (new, new, old), 1)]
    );
}

/// Even if a closure ignores the error of `forward`, the record must have no effect.
#[test]
fn a_fault_behind_forward_fails_the_record_even_if_it_is_ignored() {
    type Ignore = fn(Result<(), Failure>) -> Result<(), Failure>;
    let ways: [Ignore; 4] = [
        |result| result,
        |result| {
            drop(result);
            Ok(())
        },
        |result| result.or(Ok(())),
        |_| Err("another error".into()),
    ];
    for ignore in ways {
        let mut bench = Bench::new(move |app| {
            let out = app.output(&text("log"));
            app.source(&text("t"))
                .process(move |ctx, line| {
                    ctx.emit(&out, line.key.clone(), line.value.clone())?;
                    ignore(ctx.forward(line.key, line.value))
                })
                .process_values(move |ctx, line| ignore(ctx.forward(line.value)))
                .try_map(|value| Ok(value.parse::<u64>()?))
                .map(|n| n.to_string())
                .to(&text("out"));
        });
        if ignore(Ok(())).is_ok() {
            bench.check(0, "k=7", &["log:k=7", "out:k=7"]);
        }
        let fault = bench.run(0, "k=x").unwrap_err();
        assert!(fault.to_string().contains("invalid digit"), "{fault}");
    }
}

#[test]
fn an_output_that_can_not_be_encoded_fails_the_record_even_if_it_is_ignored() {
    let mut bench = Bench::new(|app| {
        let nulls = Topic::<String, f64>::with("log", Plain, Refuses);
        let out = app.output(&nulls);
        app.source(&text("t")).for_each(move |ctx, line| {
            let _ignored = ctx.emit(&out, line.key, 1.0);
        });
    });
    let fault = bench.run(0, "k=a").unwrap_err();
    assert_eq!(fault.kind(), "EncodeError", "{fault}");
}

struct Refuses;
impl Encode<f64> for Refuses {
    fn encode(&self, _: &f64, _: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        Err(CodecError::invalid("encodable", "no"))
    }
}

#[test]
fn a_store_is_not_used_behind_a_change_of_keys() {
    let mut bench = Bench::new(|app| {
        let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
        app.source(&text("t"))
            .with_store(&counts)
            .key_by(|value| value.clone())
            .for_each(move |ctx, line| ctx.store(&counts).put(&line.key, &1));
    });
    let fault = bench.run(0, "k=a").unwrap_err();
    assert_eq!(fault.kind(), "StateError");
    assert!(
        fault
            .to_string()
            .starts_with("this step does not have the store counts"),
        "{fault}"
    );
}

/// Returns a processor that doubles each value or drops it, chosen at run time.
fn chosen(drops: bool) -> Box<dyn Processor<String, String, Key = String, Value = String>> {
    struct Doubles;
    impl Processor<String, String> for Doubles {
        type Key = String;
        type Value = String;

        fn process(
            &mut self,
            ctx: &ProcessCtx<'_, String, String>,
            record: Record<String, String>,
        ) -> Result<(), Failure> {
            ctx.forward(record.key, record.value.repeat(2))
        }
    }
    struct Drops;
    impl Processor<String, String> for Drops {
        type Key = String;
        type Value = String;

        fn process(
            &mut self,
            _: &ProcessCtx<'_, String, String>,
            _: Record<String, String>,
        ) -> Result<(), Failure> {
            Ok(())
        }
    }
    if drops {
        Box::new(Drops)
    } else {
        Box::new(Doubles)
    }
}

#[test]
fn a_processor_may_be_chosen_at_run_time() {
    for drops in [true, false] {
        let mut bench = Bench::new(|app| {
            app.source(&text("t"))
                .process_with(move || chosen(drops))
                .to(&text("out"));
        });
        let expected = ["out:k=aa"];
        bench.check(0, "k=a", if drops { &[] } else { &expected });
    }
}

/// `Record::new` sets no time.
#[test]
fn a_record_without_a_time_has_that_of_the_record_at_hand() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let mut bench = Bench::new(move |app| {
        app.source(&text("t"))
            .process_values(|ctx, line| ctx.forward_record(line.at(Timestamp(99))))
            .process(|ctx, line| ctx.forward_record(Record::new(line.key, line.value)))
            .for_each(move |_, line| log.lock().unwrap().push(line.timestamp));
    });
    bench.check(0, "k=a", &[]);
    assert_eq!(*seen.lock().unwrap(), [Some(Timestamp(99))]);
}

struct Numbered(usize);

impl ValueProcessor<String, String> for Numbered {
    type Value = String;

    fn process(
        &mut self,
        ctx: &ValuesCtx<'_, String>,
        record: Record<&String, String>,
    ) -> Result<(), Failure> {
        self.0 += 1;
        ctx.forward(format!("{} {}", record.value, self.0))
    }
}

#[test]
fn a_value_processor_keeps_the_key_and_its_memory() {
    let mut bench = Bench::new(|app| {
        app.source(&text("t"))
            .process_values_with(|| {
                Box::new(Numbered(0)) as Box<dyn ValueProcessor<String, String, Value = String>>
            })
            .to(&text("out"));
    });
    bench.check(0, "k=a", &["out:k=a 1"]);
    bench.check(0, "l=b", &["out:l=b 2"]);
}
