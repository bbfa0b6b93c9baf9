//! Snapshots of a database, for other threads.
//!
//! A snapshot of RocksDB borrows its database, and a reader has to own both. A struct can't borrow from itself without
//! `unsafe`, but an `async` block can. So a snapshot is a future that never ends by itself: it owns the database and the
//! snapshot, and each poll does one read. Its drop releases the snapshot, then its share of the database.

use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use eos_protocol::state::{Position, StoreId};
use rocksdb::{DB, Snapshot};

use super::cursor::RocksCursor;
use super::fault::fault;
use super::{POSITION_KEY, decode_position, family, prefixed};
use crate::range::{Direction, KeyRange};
use crate::reader::{Page, SnapshotOf, TakeSnapshot};
use crate::{EngineFault, StoreError};

/// Takes snapshots of a database. It keeps the database open.
pub(super) struct Snapshots {
    db: Arc<DB>,
    path: PathBuf,
}

impl Snapshots {
    pub(super) fn new(db: &Arc<DB>, path: &Path) -> Self {
        Self {
            db: Arc::clone(db),
            path: path.to_owned(),
        }
    }
}

impl TakeSnapshot for Snapshots {
    fn take(&self) -> Result<Box<dyn SnapshotOf>, StoreError> {
        let exchange = Arc::<Exchange>::default();
        let body = serve(
            Arc::clone(&self.db),
            self.path.clone(),
            Arc::clone(&exchange),
        );
        let mut snapshot = RocksSnapshot {
            body: Box::pin(body),
            exchange,
            path: self.path.clone(),
            position: None,
        };
        match snapshot.ask(Request::Position)? {
            Response::Position(position) => snapshot.position = position,
            _ => return Err(snapshot.unanswered()),
        }
        Ok(Box::new(snapshot))
    }
}

struct RocksSnapshot {
    body: Pin<Box<dyn Future<Output = ()> + Send>>,
    exchange: Arc<Exchange>,
    path: PathBuf,
    position: Option<Position>,
}

enum Request {
    Position,
    Get(StoreId, Vec<u8>),
    Page(StoreId, KeyRange, Direction),
}

enum Response {
    Position(Option<Position>),
    Value(Option<Vec<u8>>),
    Page(Page),
}

/// The request for the next poll, and its result.
#[derive(Default)]
struct Exchange(Mutex<Turn>);

#[derive(Default)]
struct Turn {
    request: Option<Request>,
    response: Option<Result<Response, StoreError>>,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request.
    async fn next(&self) -> Request {
        poll_fn(|_| match self.lock().request.take() {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        })
        .await
    }
}

/// Takes a snapshot at the first poll, and reads it.
async fn serve(db: Arc<DB>, path: PathBuf, exchange: Arc<Exchange>) {
    let snapshot = db.snapshot();
    loop {
        let request = exchange.next().await;
        let response = read(&db, &path, &snapshot, request);
        exchange.lock().response = Some(response);
    }
}

fn read(
    db: &DB,
    path: &Path,
    snapshot: &Snapshot<'_>,
    request: Request,
) -> Result<Response, StoreError> {
    let at = |error| fault(path, error);
    match request {
        Request::Position => {
            let bytes = snapshot.get(POSITION_KEY).map_err(at)?;
            let position = bytes.map(|bytes| decode_position(&bytes, path));
            Ok(Response::Position(position.transpose()?))
        }
        Request::Get(store, key) => {
            let mut full = Vec::new();
            prefixed(&mut full, store, &key);
            let value = snapshot.get_cf(family(db, store)?, &full);
            Ok(Response::Value(value.map_err(at)?))
        }
        Request::Page(store, range, direction) => {
            let family = family(db, store)?;
            let rows = |reads| snapshot.raw_iterator_cf_opt(family, reads);
            let check = Box::new(|result: Result<(), rocksdb::Error>| result.map_err(at));
            let mut cursor = RocksCursor::seek(rows, check, store, &range, direction)?;
            Ok(Response::Page(Page::read(&mut cursor, &range, direction)?))
        }
    }
}

impl RocksSnapshot {
    fn ask(&mut self, request: Request) -> Result<Response, StoreError> {
        self.exchange.lock().request = Some(request);
        let _pending = self
            .body
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let response = self.exchange.lock().response.take();
        response.unwrap_or_else(|| Err(self.unanswered()))
    }

    fn unanswered(&self) -> StoreError {
        StoreError::Engine {
            path: self.path.clone(),
            source: EngineFault::new("a snapshot did not return what was read"),
        }
    }
}

impl SnapshotOf for RocksSnapshot {
    fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    fn get(&mut self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        match self.ask(Request::Get(store, key.to_vec()))? {
            Response::Value(Some(found)) => {
                *value = found;
                Ok(true)
            }
            Response::Value(None) => Ok(false),
            _ => Err(self.unanswered()),
        }
    }

    fn page(
        &mut self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Page, StoreError> {
        match self.ask(Request::Page(store, range.clone(), direction))? {
            Response::Page(page) => Ok(page),
            _ => Err(self.unanswered()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use eos_protocol::state::{Family, StoreId};
    use tempfile::tempdir;

    use super::super::{RocksBackend, StateMemory};
    use crate::testing::at;
    use crate::{Batch, Direction, KeyRange, StoreBackend, StoreError};

    const STORE: StoreId = StoreId::plain("counts");

    /// Without the close of its readers, the database would stay open as long as a snapshot exists.
    #[test]
    fn a_database_closes_with_live_snapshots_and_opens_again_at_once() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let open = || RocksBackend::open(dir.path(), &[Family::Plain], &memory);
        let mut database = open().unwrap();
        let mut batch = Batch::new();
        let keys: Vec<_> = (0..10_000_u32).map(u32::to_be_bytes).collect();
        for key in &keys {
            batch.write(STORE, key, Some(b"value"));
        }
        database.apply(&batch, &at(1)).unwrap();
        let reader = database.reader().unwrap();
        let kept = reader.snapshot().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let scans = (0..2).map(|_| {
            let (reader, ended) = (reader.clone(), Arc::clone(&ended));
            thread::spawn(move || {
                let snapshot = reader.snapshot().unwrap();
                let mut pages = 0_u64;
                let refused = loop {
                    match snapshot.page(STORE, &KeyRange::all(), Direction::Forward) {
                        Ok(page) => pages += u64::from(!page.rows.is_empty()),
                        Err(error) => break error,
                    }
                };
                assert!(ended.load(Ordering::SeqCst), "it was refused too soon");
                assert_eq!(refused, StoreError::Closed);
                pages
            })
        });
        let scans: Vec<_> = scans.collect();
        thread::sleep(Duration::from_millis(50));
        ended.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        drop(database);
        let took = begun.elapsed();
        let again = open().unwrap();
        assert!(took < Duration::from_secs(5), "the close took {took:?}");
        for scan in scans {
            assert!(scan.join().unwrap() > 0);
        }
        let mut value = Vec::new();
        let refused = kept.get(STORE, &keys[0], &mut value);
        assert_eq!(refused, Err(StoreError::Closed));
        let reader = again.reader().unwrap();
        let snapshot = reader.snapshot().unwrap();
        assert!(snapshot.get(STORE, &keys[0], &mut value).unwrap());
        assert_eq!(snapshot.position(), Some(&at(1)));
    }
}
