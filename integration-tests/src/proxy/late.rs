//! Kept requests, and their late delivery.

use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_wire::frame::{self, Header};

use super::answers;
use super::rule::{Hold, On, RuleId};

/// The time limit of a broker to accept a connection, and to respond.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) rule: RuleId,
    pub(super) header: Header,
    pub(super) frame: Bytes,
    pub(super) hold: Hold,
    pub(super) since: Instant,
    /// The number of completed steps of [`Until::Answered`](super::Until::Answered).
    pub(super) progress: usize,
    /// The connection that it came on.
    pub(super) origin: Arc<dyn Origin>,
}

/// The connection of a kept request.
pub(super) trait Origin: fmt::Debug + Send + Sync {
    /// Returns the number of the connection, and the index of the broker.
    fn place(&self) -> (u64, usize);

    /// Sends the request on this connection. Its response arrives on the same connection.
    fn send_late(&self, rule: RuleId, header: Header, request: &[u8], kept: Duration);
}

/// A request that was delivered late, and the broker's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The request.
    pub header: Header,
    /// The time for which it was kept.
    pub kept: Duration,
    /// The broker's error code, 0 for success. `None` if the broker did not respond, or if the API of the request is
    /// not supported.
    pub code: Option<i16>,
}

impl Kept {
    /// Delivers the request. On a new connection, waits for the response. On the old connection, the response arrives
    /// with the others of this connection.
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

/// Sends one request on a new connection. Brokers need no handshake before it.
fn ask(to: SocketAddr, request: &[u8]) -> std::io::Result<Option<Bytes>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    frame::write(&mut stream, request)?;
    let answer = frame::read(&mut stream, frame::LARGEST);
    // The broker may have closed the connection already.
    let _ = stream.shutdown(Shutdown::Both);
    answer
}
