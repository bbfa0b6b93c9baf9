//! The size of the index of due stores, and the cost of a search in it.

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Timestamp};

use crate::conformance::position;
use crate::memory::MemoryBackend;
use crate::{NextDue, StoreKind, TaskStore};

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

/// H6 of the design: a time-out per order, set and cancelled within a second.
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
