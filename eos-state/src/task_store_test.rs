use std::task::Poll;

use super::*;
use crate::load::Load;
use crate::testing::{BrokenBackend, at};
use crate::{MemoryBackend, StoreBackend};

const COUNTS: StoreId = StoreId::plain("counts");
const SEEN: StoreId = StoreId::plain("seen");
const VIEWS: StoreId = StoreId::windowed("views");

fn store() -> TaskStore {
    over(Box::new(MemoryBackend::new()))
}

fn over(backend: Box<dyn StoreBackend>) -> TaskStore {
    let kinds = [
        (VIEWS, StoreKind::Ordered),
        (COUNTS, StoreKind::Point),
        (SEEN, StoreKind::Scanned),
    ];
    TaskStore::new(backend, kinds).unwrap()
}

fn get(store: &TaskStore, id: StoreId, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = b"rest of an earlier read".to_vec();
    store.get(id, key, &mut value).unwrap().then_some(value)
}

fn read(mut scan: Scan<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut all = Vec::new();
    while let Some((key, value)) = scan.next().unwrap() {
        all.push((text(key), text(value)));
    }
    all
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |text: &str| text.to_owned();
    list.iter().map(|(k, v)| (own(k), own(v))).collect()
}

#[test]
fn a_read_sees_the_topmost_layer() {
    let mut store = store();
    store.put(COUNTS, b"k", b"committed").unwrap();
    store.keep_record();
    store.apply(&at(1)).unwrap();
    assert_eq!(get(&store, COUNTS, b"k").unwrap(), b"committed");
    store.put(COUNTS, b"k", b"kept").unwrap();
    store.keep_record();
    assert_eq!(get(&store, COUNTS, b"k").unwrap(), b"kept");
    store.delete(COUNTS, b"k").unwrap();
    assert_eq!(get(&store, COUNTS, b"k"), None);
    assert_eq!(get(&store, SEEN, b"k"), None, "stores are apart");
}

#[test]
fn rows_of_new_windows_are_found_after_the_cache_has_evicted_them() {
    let memory = CacheMemory::new(16 * 1024);
    let mut store = store().cached(&memory);
    let key =
        |window: u64, number: u32| [&window.to_be_bytes()[..], &number.to_be_bytes()].concat();
    for window in 0..40 {
        for number in 0..100 {
            let key = key(window, number);
            assert_eq!(get(&store, VIEWS, &key), None);
            store.put(VIEWS, &key, &key).unwrap();
            store.keep_record();
            if number % 10 == 0 {
                store.apply(&at(window * 100 + u64::from(number))).unwrap();
            }
        }
        store.apply(&at(window * 100 + 99)).unwrap();
        for window in [window, window / 2] {
            for number in 0..100 {
                let key = key(window, number);
                assert_eq!(get(&store, VIEWS, &key).unwrap(), key);
            }
        }
    }
}

#[test]
fn a_scanned_store_has_no_cache() {
    let mut store = store().cached(&CacheMemory::new(64 * 1024));
    for id in [SEEN, COUNTS] {
        store.put(id, b"k", b"committed").unwrap();
    }
    store.keep_record();
    store.apply(&at(1)).unwrap();
    for (id, is_cached) in [(SEEN, false), (COUNTS, true)] {
        assert_eq!(get(&store, id, b"k").unwrap(), b"committed");
        let (slot, hash) = (store.slot(id).unwrap(), store.hasher.hash(b"k"));
        let cached = store.caches.borrow_mut()[slot].get(hash, b"k").is_some();
        assert_eq!(cached, is_cached);
    }
}

#[test]
fn a_failed_record_leaves_no_trace_and_an_abort_neither() {
    let mut store = store();
    store.put(COUNTS, b"k", b"1").unwrap();
    store.keep_record();
    store.put(COUNTS, b"k", b"2").unwrap();
    store.delete(COUNTS, b"j").unwrap();
    store.drop_record();
    assert_eq!(get(&store, COUNTS, b"k").unwrap(), b"1");
    store.put(COUNTS, b"l", b"3").unwrap();
    store.discard();
    assert_eq!(get(&store, COUNTS, b"k"), None);
    store.keep_record();
    assert_eq!(
        get(&store, COUNTS, b"l"),
        None,
        "the scratch went with the abort"
    );
    assert_eq!((store.bytes(), store.position()), (0, None));
}

#[test]
fn the_backend_is_written_only_by_apply() {
    let mut store = store();
    store.put(COUNTS, b"k", b"1").unwrap();
    store.keep_record();
    let mut value = Vec::new();
    assert!(!store.backend.get(COUNTS, b"k", &mut value).unwrap());
    store.apply(&at(7)).unwrap();
    assert!(store.backend.get(COUNTS, b"k", &mut value).unwrap());
    assert_eq!(store.position(), Some(&at(7)));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn a_scan_merges_all_layers_both_ways() {
    for id in [SEEN, COUNTS] {
        let mut store = store();
        for key in ["a", "b", "c", "d"] {
            store.put(id, key.as_bytes(), b"committed").unwrap();
        }
        store.keep_record();
        store.apply(&at(1)).unwrap();
        store.delete(id, b"b").unwrap();
        store.put(id, b"c", b"kept").unwrap();
        store.put(id, b"e", b"kept").unwrap();
        store.delete(id, b"absent").unwrap();
        store.keep_record();
        store.put(id, b"b2", b"written").unwrap();
        store.delete(id, b"d").unwrap();
        let mut all = pairs(&[
            ("a", "committed"),
            ("b2", "written"),
            ("c", "kept"),
            ("e", "kept"),
        ]);
        let scan = |range: &KeyRange, way| read(store.scan(id, range, way).unwrap());
        assert_eq!(scan(&KeyRange::all(), Direction::Forward), all);
        let middle = KeyRange::between(&b"b"[..]..&b"e"[..]);
        assert_eq!(scan(&middle, Direction::Forward), all[1..3]);
        assert_eq!(scan(&KeyRange::prefix(b"b"), Direction::Reverse), all[1..2]);
        let inverted = KeyRange::between(&b"z"[..]..&b"a"[..]);
        assert_eq!(scan(&inverted, Direction::Forward), []);
        all.reverse();
        assert_eq!(scan(&KeyRange::all(), Direction::Reverse), all);
    }
}

#[test]
fn a_scan_shows_what_was_there_when_it_began() {
    for id in [SEEN, COUNTS] {
        let mut store = store();
        store.put(id, b"a", b"1").unwrap();
        store.keep_record();
        store.put(id, b"b", b"1").unwrap();
        let mut scan = store
            .scan(id, &KeyRange::all(), Direction::Forward)
            .unwrap();
        let mut seen = Vec::new();
        while let Some((key, value)) = scan.next().unwrap() {
            seen.push((key.to_vec(), value.to_vec()));
            let grown = [key, b"+"].concat();
            store.put(id, &grown, b"2").unwrap();
            store.put(id, b"b", b"2").unwrap();
            store.delete(id, b"a").unwrap();
        }
        assert_eq!(
            seen,
            [
                (b"a".to_vec(), b"1".to_vec()),
                (b"b".to_vec(), b"1".to_vec())
            ]
        );
        assert_eq!(get(&store, id, b"a+").unwrap(), b"2");
    }
}

#[test]
fn changes_are_coalesced_and_in_the_order_of_changelog_keys() {
    let mut store = store();
    for (id, key, value) in [
        (SEEN, "z", "1"),
        (COUNTS, "b", "1"),
        (VIEWS, "w", "1"),
        (COUNTS, "a", "1"),
        (COUNTS, "b", "2"),
    ] {
        store.put(id, key.as_bytes(), value.as_bytes()).unwrap();
        store.keep_record();
    }
    store.delete(SEEN, b"a").unwrap();
    store.keep_record();
    store.put(SEEN, b"dropped", b"1").unwrap();
    store.drop_record();
    let own = |w: Write<'_>| (w.store, w.key.to_vec(), w.value.map(<[u8]>::to_vec));
    let write = |store, key: &'static [u8], value| Write { store, key, value };
    let mut plain = [
        write(COUNTS, b"a", Some(&b"1"[..])),
        write(COUNTS, b"b", Some(b"2")),
        write(SEEN, b"a", None),
        write(SEEN, b"z", Some(b"1")),
    ]
    .map(own);
    plain.sort_by_key(|(id, key, _)| (id.to_be_bytes(), key.clone()));
    let changes =
        |store: &mut TaskStore, family| store.changes(family).map(own).collect::<Vec<_>>();
    assert_eq!(changes(&mut store, Family::Plain), plain);
    assert_eq!(changes(&mut store, Family::Windowed).len(), 1);
    // A query does not freeze the result: the next query includes later writes.
    store.put(VIEWS, b"a", b"1").unwrap();
    store.keep_record();
    assert_eq!(changes(&mut store, Family::Windowed).len(), 2);
    assert!(store.touched(Family::Windowed));
    store.discard();
    assert!(!store.touched(Family::Windowed) && !store.touched(Family::Plain));
}

#[test]
fn many_keys_are_looked_for_through_all_layers() {
    let mut store = store();
    for key in [b"a", b"b", b"c"] {
        store.put(COUNTS, key, b"1").unwrap();
    }
    store.keep_record();
    store.apply(&at(1)).unwrap();
    store.delete(COUNTS, b"b").unwrap();
    store.keep_record();
    store.put(COUNTS, b"c", b"2").unwrap();
    let keys: [&[u8]; 5] = [b"x", b"c", b"b", b"a", b"a"];
    let mut found = vec![None; keys.len()];
    let mut calls = 0;
    let each = |place: usize, value: Option<&[u8]>| {
        found[place] = value.map(<[u8]>::to_vec);
        calls += 1;
    };
    store.multi_get(COUNTS, &keys, each).unwrap();
    let one = Some(b"1".to_vec());
    assert_eq!(found, [None, Some(b"2".to_vec()), None, one.clone(), one]);
    assert_eq!(calls, 5);
}

#[test]
fn bytes_grow_with_what_is_written_and_count_an_overwrite_once() {
    let mut store = store();
    let mut last = 0;
    for n in 0..100u32 {
        store.put(SEEN, &n.to_be_bytes(), &[0; 50]).unwrap();
        store.keep_record();
        assert!(store.bytes() >= last + 54);
        last = store.bytes();
    }
    store.put(SEEN, &1u32.to_be_bytes(), &[1; 50]).unwrap();
    store.keep_record();
    assert_eq!(store.bytes(), last);
}

#[test]
fn what_is_loaded_must_not_meet_an_open_transaction() {
    let mut store = store();
    let load = || {
        let mut load = Load::new();
        load.write(COUNTS, b"k", Some(b"1"));
        load
    };
    store.begin_load(load(), at(1)).unwrap();
    assert_eq!(store.end_apply(true), Poll::Ready(Ok(())));
    assert_eq!(get(&store, COUNTS, b"k").unwrap(), b"1");
    store.put(COUNTS, b"j", b"1").unwrap();
    assert_eq!(
        store.begin_load(load(), at(2)),
        Err(StoreError::OpenTransaction)
    );
    store.keep_record();
    assert_eq!(
        store.begin_load(load(), at(2)),
        Err(StoreError::OpenTransaction)
    );
    assert!(store.poison().is_none());
    store.discard();
    store.begin_load(load(), at(2)).unwrap();
}

#[test]
fn a_store_that_was_not_declared_is_named() {
    let store = store();
    let other = StoreId::plain("other");
    let error = store.put(other, b"k", b"v").unwrap_err();
    assert_eq!(error, StoreError::UnknownStore { store: other });
    assert!(
        store.put(COUNTS, b"k", b"v").is_ok(),
        "that is no reason to stop"
    );
    let twice = [(other, StoreKind::Point), (other, StoreKind::Ordered)];
    let error = TaskStore::new(Box::new(MemoryBackend::new()), twice).unwrap_err();
    assert_eq!(error, StoreError::SameId { store: other });
}

#[test]
fn the_first_failure_is_the_answer_to_everything_after() {
    for fail in [
        BrokenBackend::READS,
        BrokenBackend::WRITES,
        BrokenBackend::CURSORS,
    ] {
        let mut store = over(Box::new(BrokenBackend::failing(fail)));
        store.put(COUNTS, b"written", b"1").unwrap();
        store.keep_record();
        let error = match fail {
            BrokenBackend::READS => store.get(COUNTS, b"k", &mut Vec::new()).unwrap_err(),
            BrokenBackend::WRITES => store.apply(&at(1)).unwrap_err(),
            _ => {
                let all = KeyRange::all();
                let mut scan = store.scan(COUNTS, &all, Direction::Forward).unwrap();
                while scan.next().is_ok() {}
                scan.next().unwrap_err()
            }
        };
        assert_eq!(error, BrokenBackend::error());
        assert_eq!(store.poison(), Some(&error));
        let mut value = Vec::new();
        let again: [Result<(), StoreError>; 7] = [
            store.get(COUNTS, b"written", &mut value).map(drop),
            store.multi_get(COUNTS, &[b"written"], |_, _| ()),
            store.put(COUNTS, b"k", b"v"),
            store.delete(COUNTS, b"k"),
            store
                .scan(COUNTS, &KeyRange::all(), Direction::Forward)
                .map(drop),
            store.flush(),
            store.begin_load(Load::new(), at(2)),
        ];
        for result in again {
            assert_eq!(result, Err(error.clone()));
        }
        assert_eq!(store.apply(&at(2)), Err(error));
    }
}

/// A record may have written something that joins a later transaction.
#[test]
fn what_is_put_beside_a_record_is_the_transactions_and_the_records_own_is_not() {
    let mut store = store();
    store.put(VIEWS, b"b", b"1").unwrap();
    store.keep_record();
    let changed: Vec<_> = store
        .changes(Family::Windowed)
        .map(|w| w.key.to_vec())
        .collect();
    assert_eq!(changed, [b"b"]);
    store.put(COUNTS, b"held", b"1").unwrap();
    store.put_beside(VIEWS, b"", b"terms").unwrap();
    let changed: Vec<_> = store
        .changes(Family::Windowed)
        .map(|w| w.key.to_vec())
        .collect();
    assert_eq!(changed, [&b""[..], b"b"]);
    assert!(!store.touched(Family::Plain));
    store.apply(&at(1)).unwrap();
    assert_eq!(get(&store, VIEWS, b"").unwrap(), b"terms");
    store.put_beside(VIEWS, b"", b"others").unwrap();
    store.discard();
    assert_eq!(get(&store, VIEWS, b"").unwrap(), b"terms");
}

/// The worker would report the error again at each of its steps.
#[test]
fn a_refused_transaction_is_not_in_flight() {
    let store = StoreId::plain("counts");
    let broken = Box::new(BrokenBackend::failing(BrokenBackend::WRITES));
    let mut task = TaskStore::new(broken, [(store, StoreKind::Point)]).unwrap();
    task.put(store, b"a", b"1").unwrap();
    task.keep_record();
    assert!(task.begin_apply(at(1), Vec::new()).is_err());
    assert!(!task.is_applying());
}

/// The effects of the current record may still be dropped, so an item that it handles is not handled yet.
#[test]
fn items_are_handled_once_their_record_is_kept() {
    let store_id = StoreId::plain("due");
    let time = |ms| eos_protocol::Timestamp(ms);
    let store = TaskStore::new(
        Box::new(MemoryBackend::new()),
        [(store_id, StoreKind::Point)],
    );
    let mut store = store
        .unwrap()
        .with_due([(store_id, Clock::Stream)])
        .unwrap();
    assert_eq!(store.handled_to(Clock::Stream, time(10)), Ok(time(10)));
    store.put_due(store_id, b"k", time(5), b"").unwrap();
    store.keep_record();
    assert_eq!(store.handled_to(Clock::Stream, time(10)), Ok(time(4)));
    assert_eq!(store.handled_to(Clock::Stream, time(3)), Ok(time(3)));
    let NextDue::Item(item) = store.next_due(Clock::Stream, time(10)).unwrap() else {
        panic!("an item is due");
    };
    store.handle_due(&item).unwrap();
    assert_eq!(store.handled_to(Clock::Stream, time(10)), Ok(time(4)));
    store.drop_record();
    assert_eq!(store.handled_to(Clock::Stream, time(10)), Ok(time(4)));
    store.handle_due(&item).unwrap();
    store.keep_record();
    assert_eq!(store.handled_to(Clock::Stream, time(10)), Ok(time(10)));
}
