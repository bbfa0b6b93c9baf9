//! The size of the index of due stores, the cost of a search in it, and large loads.

use std::ops::Range;

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Place, Round, Timestamp};

use crate::conformance::position;
use crate::due::{self, Moments};
use crate::memory::MemoryBackend;
use crate::{Load, NextDue, StoreKind, TaskStore};

fn store() -> (StoreId, TaskStore) {
    let id = StoreId::plain("due");
    let backend = Box::new(MemoryBackend::new());
    let store = TaskStore::new(backend, [(id, StoreKind::Point)]).unwrap();
    (id, store.with_due([(id, Clock::Stream)]).unwrap())
}

fn commit(store: &mut TaskStore, seq: u64) {
    store.keep_record();
    store.begin_apply(position(seq), Vec::new()).unwrap();
    assert!(store.end_apply(true).is_ready());
}

/// H6 of the design: a timeout per order, set and cancelled within a second.
#[test]
fn a_cancelled_item_leaves_no_entry_until_its_moment() {
    let (id, mut store) = store();
    let day = Timestamp(86_400_000);
    let mut seq = 0;
    for n in 0..1_000_u32 {
        let key = n.to_be_bytes();
        store.put_due(id, &key, day, b"").unwrap();
        // Every second one is cancelled by a later transaction, some are renewed before.
        if n % 2 == 0 {
            seq += 1;
            commit(&mut store, seq);
        }
        if n % 3 == 0 {
            store.put_due(id, &key, Timestamp(day.0 + 5), b"").unwrap();
            store.put_due(id, &key, Timestamp(5), b"").unwrap();
        }
        assert!(store.delete_due(id, &key).unwrap());
    }
    commit(&mut store, seq + 1);
    assert_eq!(store.listed_places(Clock::Stream).unwrap(), []);
    assert_eq!(
        store.next_due(Clock::Stream, day).unwrap(),
        NextDue::Nothing
    );
}

/// The engine still has the entries of handled items, deleted. A search from the front would read all of them for each
/// failed record.
#[test]
fn a_dropped_record_does_not_begin_the_search_at_the_front() {
    let id = StoreId::plain("due");
    let backend = Box::new(MemoryBackend::new());
    let store = TaskStore::new(backend, [(id, StoreKind::Point)]).unwrap();
    let mut store = store.with_due([(id, Clock::Wall)]).unwrap();
    for n in 1..=5_u8 {
        store.put_due(id, &[n], Timestamp(n.into()), b"").unwrap();
    }
    store.keep_record();
    let next = |store: &TaskStore| match store.next_due(Clock::Wall, Timestamp(9)).unwrap() {
        NextDue::Item(item) => item,
        other => panic!("{other:?}"),
    };
    for n in 1..=2_u8 {
        let item = next(&store);
        assert_eq!(item.place.key, [n]);
        store.handle_due(&item).unwrap();
        store.keep_record();
    }
    // The record handles an item, sets one and cancels one.
    store.handle_due(&next(&store)).unwrap();
    store.put_due(id, &[0], Timestamp(0), b"").unwrap();
    store.delete_due(id, &[4]).unwrap();
    assert_eq!(next(&store).place.key, [0]);
    store.drop_record();
    let searches = &store.due.as_ref().unwrap().searches;
    let from = match searches[super::at(Clock::Wall)].borrow().from() {
        super::search::From::At(place) => place.key.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        from,
        [0],
        "the entry that the record added is the first place without one"
    );
    for n in 3..=5_u8 {
        let item = next(&store);
        assert_eq!(item.place.key, [n]);
        store.handle_due(&item).unwrap();
        store.keep_record();
    }
    let last = store.next_due(Clock::Wall, Timestamp(9)).unwrap();
    assert_eq!(last, NextDue::Nothing);
}

/// A restore reads items and rows from two changelogs, in several loads of more rows than it looks up at once. An earlier
/// version wrote an item for each row, and the rows have the same moments now.
#[test]
fn loads_of_many_rows_and_items_list_each_row_once() {
    const MANY: u32 = 700;
    let (items, rows) = (StoreId::plain("items"), StoreId::plain("rows"));
    let moment = |key: &[u8]| Timestamp(i64::from(key[3]));
    let load_of = |range: Range<u32>, is_item: bool, is_there: bool| {
        let mut load = Load::new();
        for n in range {
            let key = n.to_be_bytes();
            let (mut full, mut value) = (key.to_vec(), key.to_vec());
            let mut store = rows;
            if is_item {
                store = items;
                due::row_key(&mut full, &key);
                let due = moment(&key);
                let listed = Round::of(due);
                value.clear();
                Moments { due, listed }.encode(&mut value, b"");
            }
            load.write(store, &full, is_there.then_some(&value[..]));
        }
        load
    };
    let [put_items, delete_items, put_rows] = [(true, true), (true, false), (false, true)];
    for (order, listed) in [
        (&[put_items, put_rows, delete_items][..], MANY),
        (&[put_items, delete_items, put_rows], MANY),
        (&[put_rows, put_items, delete_items], MANY),
        (&[put_items, delete_items], 0),
    ] {
        let backend = Box::new(MemoryBackend::new());
        let stores = [(items, StoreKind::Point), (rows, StoreKind::Point)];
        let store = TaskStore::new(backend, stores).unwrap();
        let store = store.with_due([(items, Clock::Stream)]).unwrap();
        let moment_of = |key: &[u8], _: &[u8]| Ok(Some(Timestamp(i64::from(key[3]))));
        let store = store.with_dated(items, (rows, &"rows".into()), moment_of);
        let mut store = store.unwrap();
        for (n, (is_item, is_there)) in order.iter().copied().enumerate() {
            // The second half first.
            for half in [MANY / 2..MANY, 0..MANY / 2] {
                let load = load_of(half, is_item, is_there);
                store.begin_load(load, position(n as u64)).unwrap();
                assert!(store.end_apply(true).is_ready());
            }
        }
        let places = store.listed_places(Clock::Stream).unwrap();
        assert_eq!(places.len(), listed as usize, "{order:?}");
        let is_right = |place: &Place| place.moment() == moment(&place.key);
        assert!(places.iter().all(is_right), "{order:?}");
    }
}
