//! The network between an app and its server fails: a relay between two Unix sockets holds bytes, drops them, or cuts
//! connections.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eos_core::boundary::Taken;
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Postgres, SqlTable};

use crate::support::{Register, Worker, expected, offset, plan, rows, wait};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// Bytes wait.
    Held,
    /// Bytes are lost.
    Lossy,
}

struct State {
    /// To the server, and to the client.
    gates: [Gate; 2],
    /// The bytes that waited or were lost.
    stopped: usize,
    streams: Vec<UnixStream>,
    has_ended: bool,
}

/// What all threads of the relay see.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        for stream in self.lock().streams.drain(..) {
            // The other end may be gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes bytes until either end is closed.
    fn pass(&self, from: &UnixStream, to: &UnixStream, direction: Direction) {
        let (mut from, mut to) = (from, to);
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut state = self.lock();
            if state.gates[direction as usize] != Gate::Open {
                state.stopped += count;
            }
            while state.gates[direction as usize] == Gate::Held && !state.has_ended {
                let changed = self.changed.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
            }
            let is_lost = state.gates[direction as usize] == Gate::Lossy;
            drop(state);
            if !is_lost && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Connections to a server, which pass through this process.
struct Relay {
    shared: Arc<Shared>,
    directory: tempfile::TempDir,
    accepts: Option<JoinHandle<()>>,
}

impl Relay {
    fn to(server: PathBuf) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("eos-relay-")
            .tempdir()
            .unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET)).unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                gates: [Gate::Open; 2],
                stopped: 0,
                streams: Vec::new(),
                has_ended: false,
            }),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let accepts = std::thread::spawn(move || accept(&accepting, &listener, &server));
        Self {
            shared,
            directory,
            accepts: Some(accepts),
        }
    }

    fn gate(&self, direction: Direction, gate: Gate) {
        self.shared.lock().gates[direction as usize] = gate;
        self.shared.changed.notify_all();
    }

    /// Ends all connections, and loses the bytes that wait.
    fn cut(&self) {
        self.shared.cut();
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.gate(direction, Gate::Open);
        }
    }

    /// Delivers the bytes that wait, if the network was only slow.
    fn cut_or_release(&self, is_slow: bool) {
        if is_slow {
            self.gate(Direction::ToServer, Gate::Open);
            self.gate(Direction::ToClient, Gate::Open);
        } else {
            self.cut();
        }
    }

    /// Waits until the fault has met some bytes.
    #[track_caller]
    fn has_stopped_bytes(&self) {
        let begin = Instant::now();
        while self.shared.lock().stopped == 0 {
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(10), "no bytes were stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.cut();
        // The thread accepts this connection, and ends.
        let _ = UnixStream::connect(self.directory.path().join(SOCKET));
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

const SOCKET: &str = ".s.PGSQL.5432";

fn accept(shared: &Arc<Shared>, listener: &UnixListener, server: &PathBuf) {
    for client in listener.incoming().map_while(Result::ok) {
        if shared.lock().has_ended {
            return;
        }
        let server = UnixStream::connect(server).unwrap();
        let copy = |stream: &UnixStream| stream.try_clone().unwrap();
        shared.lock().streams.extend([copy(&client), copy(&server)]);
        let back = (copy(&server), copy(&client));
        for (from, to, direction) in [
            (client, server, Direction::ToServer),
            (back.0, back.1, Direction::ToClient),
        ] {
            let shared = Arc::clone(shared);
            std::thread::spawn(move || shared.pass(&from, &to, direction));
        }
    }
}

/// A server, and a relay to it.
struct Scene {
    /// Its connections end before the server does.
    relay: Relay,
    _cluster: Cluster,
    /// The database, without the relay.
    url: String,
    /// The database behind the relay.
    relayed: String,
}

impl Scene {
    fn start() -> Self {
        let cluster = Cluster::temporary(&[]).unwrap();
        let url = cluster.database("relayed").unwrap();
        run(&url, "CREATE TABLE t (n bigint)").unwrap();
        let directory = value(&url, "SHOW unix_socket_directories").unwrap();
        let relay = Relay::to(PathBuf::from(directory).join(SOCKET));
        let host = relay.directory.path().display().to_string();
        let (_, name) = url.rsplit_once('/').unwrap();
        let relayed = format!("postgres://postgres@{}/{name}", host.replace('/', "%2F"));
        Self {
            relay,
            _cluster: cluster,
            url,
            relayed,
        }
    }

    fn worker(url: &str, name: &str, timeout: Duration) -> (Worker, SqlTable<String, i64>) {
        let shop = Postgres::connect(url).unwrap();
        let table = shop.table("t").column("n", |_, n: &i64| *n);
        let mut plan = plan(&[table.register()]);
        plan.transaction_timeout = timeout;
        (Worker::of(&shop, plan, name), table)
    }

    /// A worker behind the relay, with a row in its open transaction.
    fn writing(&self, name: &str, timeout: Duration) -> (Worker, Taken) {
        let (mut worker, table) = Self::worker(&self.relayed, name, timeout);
        let taken = worker.take(0);
        let from = taken.offset.map_or(0, |offset| offset.get());
        worker.begin(&taken);
        let put = worker.put(&table, (0, from), &"k".into(), Some(&from));
        put.unwrap();
        wait(|slice| worker.session.flush(slice)).unwrap();
        (worker, taken)
    }

    fn sessions(&self, name: &str) -> String {
        let sessions = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^eos/[0-9a-f]{{16}}/[0-9]+/s$' AND {name}"
        );
        value(&self.url, &sessions).unwrap()
    }
}

/// A COMMIT, or its answer, is on its way when the worker gives up. Its successor finds the truth, and that stays so when
/// the network delivers the bytes late.
#[test]
fn a_commit_that_the_network_holds_is_resolved() {
    let scene = Scene::start();
    let (mut successor, _) = Scene::worker(&scene.url, "successor", Duration::from_secs(10));
    let mut from = 0;
    for (number, (held, is_late, is_committed)) in [
        (Direction::ToServer, false, false),
        (Direction::ToServer, true, false),
        (Direction::ToClient, false, true),
        (Direction::ToClient, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("t{number}");
        let timeout = Duration::from_secs(10);
        let (mut owner, taken) = scene.writing(&format!("owner-{number}"), timeout);
        owner.set(&taken, from + 1, &name).unwrap();
        scene.relay.shared.lock().stopped = 0;
        scene.relay.gate(held, Gate::Held);
        let answer = owner.session.commit(Duration::from_millis(300));
        assert!(matches!(answer, Poll::Ready(Err(_))), "{answer:?}");
        assert!(owner.session.is_spoiled());
        scene.relay.has_stopped_bytes();
        drop(owner);
        if !is_late {
            scene.relay.cut();
        }
        let after = successor.take(0);
        assert_eq!(after.name == name, is_committed, "{number}: {after:?}");
        scene.relay.cut_or_release(is_late);
        let count = format!("SELECT count(*) FROM t WHERE n = {from}");
        let found = || value(&scene.url, &count).unwrap();
        assert_eq!(found(), u8::from(is_committed).to_string(), "{number}");
        let begin = Instant::now();
        while scene.sessions("state <> 'idle'") != "0" {
            assert!(begin.elapsed() < Duration::from_secs(10), "{number}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(found(), u8::from(is_committed).to_string(), "{number}");
        assert_eq!(successor.take(0).offset, after.offset, "{number}");
        from += i64::from(is_committed);
    }
    assert_eq!(rows(&scene.url, "SELECT n FROM t ORDER BY n"), "0 1");
}

/// What the worker sends is lost, and its host is alive. No successor comes. The server ends the session after twice the
/// time limit of a transaction, so that others get the locks of its rows.
#[test]
fn a_server_ends_a_session_that_it_does_not_hear() {
    let scene = Scene::start();
    let (mut worker, taken) = scene.writing("w", Duration::from_secs(1));
    scene.relay.gate(Direction::ToServer, Gate::Lossy);
    let begin = Instant::now();
    let moves = [eos_core::boundary::Move {
        expected: expected(&taken),
        to: offset(1),
        name: "t1".into(),
    }];
    let set = worker.session.set(&moves, Duration::from_millis(100));
    assert!(set.is_pending(), "{set:?}");
    scene.relay.has_stopped_bytes();
    assert_eq!(scene.sessions("state = 'idle in transaction'"), "1");
    // The row of the position is locked until then.
    let other = "SET lock_timeout = '15s'; UPDATE eos.positions SET name = name";
    run(&scene.url, other).unwrap();
    let waited = begin.elapsed();
    assert!(waited > Duration::from_secs(1), "{waited:?}");
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(scene.sessions("true"), "0");
    // The other direction works, so the worker finds out.
    let answer = wait(|slice| worker.session.set(&moves, slice));
    assert!(answer.is_err(), "{answer:?}");
    assert!(worker.session.is_spoiled());
    assert_eq!(rows(&scene.url, "SELECT n FROM t"), "");
    scene.relay.cut();
    worker.renew().unwrap();
    assert_eq!(
        worker
            .try_take(0)
            .or_else(|_| worker.try_take(0))
            .unwrap()
            .offset,
        None
    );
}

/// The answer takes longer than the slice, so the worker calls again. Each call moves the position once.
#[test]
fn a_repeated_call_on_a_slow_network_moves_once() {
    let scene = Scene::start();
    for (number, held) in [(0, Direction::ToServer), (1, Direction::ToClient)] {
        let name = format!("w{number}");
        let (mut worker, taken) = scene.writing(&name, Duration::from_secs(10));
        let moves = [eos_core::boundary::Move {
            expected: expected(&taken),
            to: offset(number + 1),
            name: name.clone(),
        }];
        scene.relay.shared.lock().stopped = 0;
        scene.relay.gate(held, Gate::Held);
        for _ in 0..5 {
            let set = worker.session.set(&moves, Duration::from_millis(50));
            assert!(set.is_pending(), "{set:?}");
        }
        scene.relay.has_stopped_bytes();
        scene.relay.cut_or_release(true);
        wait(|slice| worker.session.set(&moves, slice)).unwrap();
        worker.commit().unwrap();
        let after = worker.take(0);
        assert_eq!((after.offset, after.name), (Some(offset(number + 1)), name));
    }
    assert_eq!(rows(&scene.url, "SELECT n FROM t ORDER BY n"), "0 1");
}
