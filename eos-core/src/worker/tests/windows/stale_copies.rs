//! Copies of a database that missed final results, because another host emitted them.

use super::*;

/// Final counts, and updates of another store for records that are called `x`.
fn two_stores(app: &mut App) {
    let (others, counted) = app
        .source(&text("in"))
        .branch(|value| value.starts_with('x'));
    others
        .group_by_key()
        .windowed_by(graceful(50))
        .count(&WindowStore::plain("others"))
        .to_stream()
        .for_each(|_, _| ());
    let out = app.output(&text("out"));
    counted
        .group_by_key()
        .windowed_by(graceful(50))
        .count(&WindowStore::plain("counts"))
        .emit_on_close()
        .for_each(move |ctx, result| {
            let (start, n) = (result.key.window.start.0, result.value);
            ctx.emit(&out, result.key.key, format!("{start}:{n}"))
        });
}

fn spec_of(disk: &Disk) -> WorkerSpec {
    let mut spec = spec_on(disk);
    spec.output_partitions = vec![1; 2];
    spec.output_limits = vec![None; 2];
    spec
}

impl Windows {
    /// Moves the task to a host with this disk. Returns the other host's disk.
    fn moves_to(&mut self, disk: Disk) -> Disk {
        // The old worker closes its database first.
        self.bench.replace(spec_of(&Disk::default()), two_stores);
        let old = std::mem::replace(&mut self.disk, disk);
        self.bench.replace(spec_of(&self.disk), two_stores);
        self.bench.assign(&[0]);
        self.bench.settle();
        old
    }
}

/// The task moves to another host, which emits results. Later only another store is written, and the changelog is trimmed up
/// to there. The first host still has the old cursor and the rows behind it.
#[test]
fn a_copy_that_missed_final_results_emits_none_of_them_again() {
    let bench = Bench::of(spec_of(&Disk::default()), two_stores);
    let mut windows = Windows {
        bench,
        disk: Disk::default(),
    };
    windows.moves_to(Disk::default());
    assert!(windows.take(&["a@10", "b@110"]).is_empty());
    let here = windows.moves_to(Disk::default());
    // No window of the first store is open any more.
    assert_eq!(windows.take(&["x@300"]), ["0:1", "100:1"]);
    for record in ["x@310", "x@320", "x@330"] {
        assert!(windows.take(&[record]).is_empty());
    }
    // Everything before the last transaction is gone.
    let ends: Vec<i64> = {
        let broker = windows.bench.kafka.broker();
        let commit = changelog::commit_record_key(Family::Windowed);
        let log = (0..).zip(&broker.changelogs[&changelog()]);
        let ends = log.filter(|(_, record)| record.as_ref().is_some_and(|(key, _)| *key == commit));
        ends.map(|(at, _)| at).collect()
    };
    windows.trim(ends[ends.len() - 2] + 1);
    windows.moves_to(here);
    assert!(windows.take(&["d@340"]).is_empty());
    assert_eq!(windows.take(&["e@900"]), ["300:1"]);
}
