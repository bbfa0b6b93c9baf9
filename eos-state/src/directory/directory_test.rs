use super::*;
use eos_protocol::{Partition, StageId};
use std::time::Duration;

fn owner() -> Owner {
    Owner {
        app: "a".into(),
        cluster: "c1".into(),
        task: TaskId {
            stage: StageId(0),
            partition: Partition::new(3).unwrap(),
        },
    }
}

fn own(slot: &Path, owner: &Owner) -> TaskDirectory {
    match TaskDirectory::open(slot, owner).unwrap() {
        Opened::Own(directory) => directory,
        Opened::Foreign(foreign) => panic!("{}", foreign.why),
    }
}

fn foreign(slot: &Path, owner: &Owner) -> ForeignDirectory {
    match TaskDirectory::open(slot, owner).unwrap() {
        Opened::Foreign(foreign) => foreign,
        Opened::Own(directory) => panic!("{directory:?} does not belong to another task"),
    }
}

fn refused(slot: &Path, owner: &Owner) -> (DirectoryError, String) {
    let error = TaskDirectory::open(slot, owner).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("0_3"), "it names the path: {text}");
    (error, text)
}

/// Returns a slot with the directory of task `0_3` and a file of its engine.
fn slot() -> tempfile::TempDir {
    let slot = tempfile::tempdir().unwrap();
    let directory = own(slot.path(), &owner());
    fs::create_dir(directory.engine()).unwrap();
    fs::write(directory.engine().join("CURRENT"), "x").unwrap();
    slot
}

fn file(slot: &tempfile::TempDir, name: &str) -> PathBuf {
    slot.path().join("tasks/0_3").join(name)
}

#[test]
fn the_layout_and_the_owner_file_are_pinned() {
    let slot = slot();
    let text = fs::read_to_string(file(&slot, "owner")).unwrap();
    assert_eq!(text, "eos-state 1\napp a\ncluster c1\ntask 0_3\n");
    assert!(file(&slot, "db/CURRENT").exists());
    let again = own(slot.path(), &owner());
    assert!(again.engine().join("CURRENT").exists(), "its state is kept");
}

#[test]
fn a_directory_is_locked_while_it_is_open() {
    let slot = slot();
    let first = own(slot.path(), &owner());
    let (error, text) = refused(slot.path(), &owner());
    assert!(matches!(error, DirectoryError::Locked { .. }), "{text}");
    drop(first);
    own(slot.path(), &owner());
}

#[test]
fn a_crash_while_it_was_made_leaves_nothing_foreign() {
    let slot = tempfile::tempdir().unwrap();
    fs::create_dir_all(file(&slot, "")).unwrap();
    own(slot.path(), &owner());
    fs::remove_file(file(&slot, "owner")).unwrap();
    fs::write(file(&slot, "owner.new"), "eos-st").unwrap();
    own(slot.path(), &owner());
}

#[test]
fn what_is_not_this_tasks_is_cleared_and_only_then_used() {
    let mut elsewhere = owner();
    elsewhere.cluster = "c2".into();
    let mut renamed = owner();
    renamed.task.stage = StageId(1);
    let all = [
        ("cluster c1, but this is cluster c2", elsewhere),
        ("of task 0_3, not 1_3", renamed),
    ];
    for (says, now) in all {
        let slot = slot();
        if now.task != owner().task {
            fs::rename(file(&slot, ""), slot.path().join("tasks/1_3")).unwrap();
        }
        let found = foreign(slot.path(), &now);
        assert!(found.why.to_string().contains(says), "{}", found.why);
        drop(found);
        let found = foreign(slot.path(), &now);
        assert!(
            found.path().join("db/CURRENT").exists(),
            "nothing goes unasked"
        );
        let cleared = found.clear().unwrap();
        assert!(!cleared.engine().exists());
        drop(cleared);
        own(slot.path(), &now);
    }
}

/// A cluster that once reports no id must not clear every database.
#[test]
fn a_cluster_without_an_id_is_no_other_cluster() {
    let slot = slot();
    let mut unknown = owner();
    unknown.cluster.clear();
    drop(own(slot.path(), &unknown));
    assert!(file(&slot, "db/CURRENT").exists());
    drop(own(slot.path(), &owner()));
}

#[test]
fn a_part_of_a_directory_is_no_directory() {
    let slot = slot();
    fs::remove_file(file(&slot, "owner")).unwrap();
    assert_eq!(foreign(slot.path(), &owner()).why, Foreign::NoOwner);
    for text in [
        "",
        "eos-state",
        "eos-state 0\n",
        "eos-state 1\napp a\n",
        "\u{0}\u{1}",
    ] {
        fs::write(file(&slot, "owner"), text).unwrap();
        let why = foreign(slot.path(), &owner()).why;
        assert_eq!(why, Foreign::Damaged { found: text.into() });
    }
    foreign(slot.path(), &owner()).clear().unwrap();
    own(slot.path(), &owner());
}

#[test]
fn another_apps_directory_is_not_ours_to_clear() {
    let slot = slot();
    let mut now = owner();
    now.app = "b".into();
    let (error, text) = refused(slot.path(), &now);
    assert!(matches!(error, DirectoryError::OtherApp { .. }));
    assert!(text.contains("state of app a, and this is app b"), "{text}");
    assert!(file(&slot, "db/CURRENT").exists());
}

#[test]
fn a_newer_format_is_refused() {
    let slot = slot();
    fs::write(file(&slot, "owner"), "eos-state 2\nwhatever\n").unwrap();
    let (error, text) = refused(slot.path(), &owner());
    assert!(matches!(error, DirectoryError::Newer { version: 2, .. }));
    assert!(
        text.contains("newest version") && text.contains("delete it"),
        "{text}"
    );
}

#[test]
fn a_rebuild_keeps_the_directory() {
    let slot = slot();
    let mut directory = own(slot.path(), &owner());
    directory.clear().unwrap();
    assert!(!directory.engine().exists());
    drop(directory);
    own(slot.path(), &owner());
}

#[test]
fn a_file_in_its_place_is_refused() {
    let slot = tempfile::tempdir().unwrap();
    fs::create_dir(slot.path().join("tasks")).unwrap();
    fs::write(slot.path().join("tasks/0_3"), "").unwrap();
    let (_, text) = refused(slot.path(), &owner());
    assert!(text.contains("EOS_STATE_DIR"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_second_owner_may_not_enter() {
    use std::os::unix::fs::PermissionsExt;
    let slot = slot();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (tasks, task) = (slot.path().join("tasks"), file(&slot, ""));
    assert_eq!((mode(&tasks), mode(&task)), (0o700, 0o700));
    fs::set_permissions(&task, fs::Permissions::from_mode(0o755)).unwrap();
    own(slot.path(), &owner());
    assert_eq!(mode(&task), 0o700, "it is closed again");
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_refused() {
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["", "lock", "owner"] {
        let slot = slot();
        let path = file(&slot, name);
        let path = PathBuf::from(path.to_str().unwrap().trim_end_matches('/'));
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.path(), &path).unwrap();
        let (error, text) = refused(slot.path(), &owner());
        assert!(
            matches!(error, DirectoryError::Symlink { .. }),
            "{name}: {text}"
        );
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn clearing_removes_links_and_leaves_what_they_point_to() {
    let elsewhere = tempfile::tempdir().unwrap();
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let slot = slot();
    std::os::unix::fs::symlink(elsewhere.path(), file(&slot, "link")).unwrap();
    std::os::unix::fs::symlink(&precious, file(&slot, "owner.new")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), file(&slot, "db/link")).unwrap();
    fs::write(file(&slot, "owner"), "?").unwrap();
    foreign(slot.path(), &owner()).clear().unwrap();
    assert_eq!(fs::read_to_string(precious).unwrap(), "x");
    assert!(!file(&slot, "link").exists());
}

#[test]
fn leftovers_are_listed_with_their_age_and_removed_when_unused() {
    let slot = slot();
    let other = Owner {
        task: TaskId::default(),
        ..owner()
    };
    let open = own(slot.path(), &other);
    for stranger in ["readme", "01_2", "+1_2", "1_-2", "1"] {
        fs::create_dir(slot.path().join("tasks").join(stranger)).unwrap();
    }
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let found = left_over(slot.path(), in_an_hour).unwrap();
    let tasks: Vec<_> = found.iter().map(|left| left.task).collect();
    assert_eq!(tasks, [owner().task], "the other one is open");
    let age = found[0].age.as_secs();
    assert!((3590..=3600).contains(&age), "{age}");

    // Written an hour later, as by a killed process, without a note in the lock.
    let log = File::options()
        .write(true)
        .open(file(&slot, "db/CURRENT"))
        .unwrap();
    log.set_modified(in_an_hour).unwrap();
    assert!(left_over(slot.path(), in_an_hour).unwrap()[0].age.is_zero());

    let back = own(slot.path(), &owner());
    let error = remove(&found[0]).unwrap_err();
    assert!(matches!(error, DirectoryError::Locked { .. }), "{error}");
    drop(back);
    assert!(remove(&found[0]).unwrap());
    assert!(!file(&slot, "").exists());
    assert!(!remove(&found[0]).unwrap(), "it is gone");
    drop(open);
    assert_eq!(left_over(slot.path(), in_an_hour).unwrap().len(), 1);
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(left_over(empty.path(), in_an_hour).unwrap(), []);
}

/// A process that opens the lock just before its removal must not hold a lock without effect.
#[cfg(unix)]
#[test]
fn a_lock_without_a_name_is_no_lock() {
    let slot = slot();
    let path = file(&slot, "lock");
    let unlinked = OpenOptions::new().write(true).open(&path).unwrap();
    assert!(is_at(&unlinked, &path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(!is_at(&unlinked, &path).unwrap());
    fs::write(&path, "").unwrap();
    assert!(!is_at(&unlinked, &path).unwrap());
}
