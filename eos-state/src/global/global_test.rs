use super::*;

fn batch<const N: usize>(rows: [(&str, Option<&str>); N]) -> GlobalBatch {
    let row = |(key, value): (&str, Option<&str>)| (key.into(), value.map(Into::into));
    rows.map(row).into()
}

fn get(snapshot: &GlobalSnapshot, key: &str) -> Option<String> {
    let mut value = Vec::new();
    let found = snapshot.get(key.as_bytes(), &mut value).unwrap();
    found.then(|| String::from_utf8(value).unwrap())
}

#[test]
fn a_snapshot_stays_the_same_while_the_writer_goes_on() {
    let mut writer = GlobalWriter::new(Box::new(GlobalMemory::default()));
    writer
        .write(&batch([("usd", Some("1")), ("eur", Some("2"))]), b"m1")
        .unwrap();
    let rows = writer.serve();
    let first = rows.snapshot();
    writer
        .write(&batch([("usd", Some("10")), ("gbp", Some("3"))]), b"m2")
        .unwrap();
    let second = rows.snapshot();
    writer
        .write(&batch([("usd", Some("100")), ("eur", None)]), b"m3")
        .unwrap();
    let all = |snapshot| ["usd", "eur", "gbp"].map(|key| get(snapshot, key));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(all(&first), [some("1"), some("2"), None]);
    assert_eq!(all(&second), [some("10"), some("2"), some("3")]);
    assert_eq!(all(&rows.snapshot()), [some("100"), None, some("3")]);
    assert_eq!(writer.mark().unwrap(), Some(b"m3".to_vec()));
}

#[test]
fn versions_without_readers_are_freed() {
    let mut writer = GlobalWriter::new(Box::new(GlobalMemory::default()));
    let rows = writer.serve();
    let first = Arc::downgrade(&rows.snapshot().version);
    writer.write(&batch([("usd", Some("1"))]), b"m").unwrap();
    assert!(first.upgrade().is_none());
}

/// A record that hangs keeps its version.
#[test]
fn a_version_of_long_ago_is_freed_without_a_stack_overflow() {
    let mut writer = GlobalWriter::new(Box::new(GlobalMemory::default()));
    let rows = writer.serve();
    let first = rows.snapshot();
    for _ in 0..300_000 {
        writer.write(&batch([("usd", Some("1"))]), b"m").unwrap();
    }
    assert_eq!(get(&first, "usd"), None);
    drop(first);
}

#[test]
fn readers_in_other_threads_see_whole_batches() {
    let mut writer = GlobalWriter::new(Box::new(GlobalMemory::default()));
    let rows = writer.serve();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let snapshot = rows.snapshot();
                    let one = get(&snapshot, "a");
                    std::thread::yield_now();
                    assert_eq!(one, get(&snapshot, "b"));
                }
            });
        }
        for n in 0..20_000 {
            let n = n.to_string();
            writer
                .write(&batch([("a", Some(&n)), ("b", Some(&n))]), b"m")
                .unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
