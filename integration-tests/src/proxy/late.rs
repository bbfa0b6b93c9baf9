//! Requests that are kept, and what becomes of them when they are delivered at last.

use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_wire::frame::{self, Header};

use super::answers;
use super::rule::{Hold, On, RuleId};

/// How long a broker may take to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) rule: RuleId,
    pub(super) header: Header,
    pub(super) frame: Bytes,
    pub(super) hold: Hold,
    pub(super) since: Instant,
    /// Steps done of [`Until::Answered`](super::Until::Answered).
    pub(super) progress: usize,
    /// The connection that it came on.
    pub(super) origin: Arc<dyn Origin>,
}

/// The connection of a kept request.
pub(super) trait Origin: fmt::Debug + Send + Sync {
    /// The number of the connection, and that of the broker.
    fn place(&self) -> (u64, usize);

    /// Sends the request. Its response is one of those of the connection.
    fn send_late(&self, rule: RuleId, header: Header, request: &[u8], kept: Duration);
}

/// What became of a request that was delivered late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The request.
    pub header: Header,
    /// How long it was kept.
    pub kept: Duration,
    /// The broker's error code, 0 for none; nothing if it did not answer, or its answer has no code
    /// that is known here.
    pub code: Option<i16>,
}

impl Kept {
    /// Delivers it. On a connection of its own it waits for the answer; on the old one the answer
    /// comes with the others of that connection.
    pub(super) fn deliver(self, to: SocketAddr) -> Option<(RuleId, Late)> {
        let kept = self.since.elapsed();
        match self.hold.on {
            On::New => {
                let answer = ask(to, &self.frame).ok().flatten();
                let code = answer.and_then(|answer| answers::code(&self.header, &answer));
                let header = self.header;
                Some((self.rule, Late { header, kept, code }))
            }
            On::Same => {
                self.origin
                    .send_late(self.rule, self.header, &self.frame, kept);
                None
            }
        }
    }
}

/// One request on a connection of its own. Brokers ask for no greeting before it.
fn ask(to: SocketAddr, request: &[u8]) -> std::io::Result<Option<Bytes>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    frame::write(&mut stream, request)?;
    let answer = frame::read(&mut stream, frame::LARGEST);
    // The broker may have closed it before.
    let _ = stream.shutdown(Shutdown::Both);
    answer
}
