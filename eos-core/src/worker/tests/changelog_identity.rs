//! Recreated changelogs: only local copies hold the state.

use eos_protocol::state::{RestartError, TopicUuid};

use super::state::*;
use super::*;

/// A process that finds a changelog with this id when it starts.
fn with_id(disk: &Disk, id: u128) -> WorkerSpec {
    let mut spec = stateful(disk, 0);
    spec.state.topic_ids = BTreeMap::from([
        ("in".into(), TopicUuid(1)),
        (CHANGELOG.into(), TopicUuid(id)),
    ]);
    spec
}

fn bench(disk: &Disk) -> Bench {
    let mut bench = Bench::of(with_id(disk, 7), counting);
    bench.assign(&[0]);
    bench.take(&["a", "b", "a"]);
    assert_eq!(bench.visible(), ["a=1", "b=1", "a=2"]);
    bench
}

/// The process stops, and another one starts.
fn restart(bench: &mut Bench, spec: WorkerSpec) {
    // The databases of the first process are closed before those of the next one are opened.
    let nowhere = with_id(&Disk::default(), 7);
    bench.replace(nowhere, counting);
    bench.replace(spec, counting);
    bench.assign(&[0]);
}

fn empty_changelog(bench: &Bench) {
    let mut broker = bench.kafka.broker();
    broker.changelogs.insert(changelog(), Vec::new());
}

fn has_database(disk: &Disk) -> bool {
    let databases = disk.databases.lock().unwrap();
    databases
        .values()
        .any(|database| eos_state::StoreBackend::position(database).is_some())
}

fn is_recreated(error: &WorkerError) -> bool {
    matches!(error, WorkerError::Restart(e) if matches!(**e, RestartError::ChangelogRecreated { .. }))
}

/// The changelog was deleted by mistake while the app was stopped, and the next start recreated it, empty. The local
/// copy is exact.
#[test]
fn the_last_complete_copy_stays_when_its_changelog_is_gone() {
    let disk = Disk::default();
    let mut bench = bench(&disk);
    empty_changelog(&bench);
    restart(&mut bench, with_id(&disk, 8));
    let error = bench.end().unwrap_err();
    assert!(is_recreated(&error), "{error}");
    restart(&mut bench, with_id(&Disk::default(), 7));
    assert!(has_database(&disk), "the copy is gone");
}

/// The changelog was deleted and recreated while the app ran. The app committed once more after that, so the changelog
/// ends with the right commit record.
#[test]
fn a_changelog_recreated_under_a_running_app_is_noticed_at_the_next_start() {
    for is_on_another_host in [false, true] {
        let disk = Disk::default();
        let mut bench = bench(&disk);
        empty_changelog(&bench);
        bench.take(&["b"]);
        assert_eq!(bench.visible().last().unwrap(), "b=2");
        let next = match is_on_another_host {
            false => disk.clone(),
            true => Disk::default(),
        };
        restart(&mut bench, with_id(&next, 8));
        bench.feed(0, &["a", "b"]);
        let error = bench.end().unwrap_err();
        assert!(is_recreated(&error), "{error}");
        assert_eq!(bench.visible().len(), 4, "nothing is counted from a stump");
        restart(&mut bench, with_id(&Disk::default(), 7));
        assert!(has_database(&disk), "the copy is gone");
    }
}

/// Offsets in format 1 name neither topics nor stores, and those in format 2 name topics. This version writes format 3.
#[test]
fn a_rolling_upgrade_continues_at_the_offsets_of_the_previous_versions() {
    let disk = Disk::default();
    let mut bench = bench(&disk);
    let metadata = |bench: &Bench| bench.kafka.broker().committed[&tp(0)].1.clone();
    let digest = TopicUuid(7).digest().unwrap().0;
    let (topics, stores) = (format!(";{digest:016x};-"), ";counts");
    for (n, version) in [(3, 2), (4, 1)] {
        let new = metadata(&bench);
        let inner = new
            .strip_prefix("eos3")
            .and_then(|s| s.strip_suffix(stores));
        let inner = inner.and_then(|s| s.strip_suffix(&topics)).unwrap();
        let topics = if version == 2 { &topics } else { "" };
        let old = format!("eos{version}{inner}{topics}");
        if let Some((_, metadata)) = bench.kafka.broker().committed.get_mut(&tp(0)) {
            *metadata = old;
        }
        restart(&mut bench, with_id(&disk, 7));
        bench.take(&["a"]);
        assert_eq!(*bench.visible().last().unwrap(), format!("a={n}"));
        assert!(metadata(&bench).starts_with("eos3;"));
    }
}

/// No record arrives while the new topic is accepted. The offsets name the topic all the same, so the next start finds
/// it.
#[test]
fn a_changelog_is_accepted_with_one_start_of_a_task_that_is_idle() {
    let disk = Disk::default();
    let mut bench = bench(&disk);
    let mut spec = with_id(&disk, 8);
    spec.state.accepted_changelogs = vec![TopicUuid(8).to_string()];
    restart(&mut bench, spec);
    bench.settle();
    restart(&mut bench, with_id(&disk, 8));
    bench.take(&["a"]);
    assert_eq!(bench.visible().last().unwrap(), "a=3");
}
