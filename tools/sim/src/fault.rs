//! Faults, and the places where they occur.

use std::fmt;

use eos_protocol::CallSite;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use eos_testkit::client::Edge;

/// A place where a fault can occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A call into the client.
    Call(CallSite, Edge),
    /// One of the first writes to a task's database after it was opened. If there is a restore, these are its writes.
    Opened(Edge),
    /// A later write to a task's database.
    Disk(Edge),
    /// The transport of a request.
    Request(Api),
}

/// A request's API key, with an order of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api(pub ApiKey);

impl PartialOrd for Api {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Api {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0 as i16).cmp(&(other.0 as i16))
    }
}

impl std::hash::Hash for Api {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0 as i16).hash(state);
    }
}

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The process dies and starts again with the contents of its disk.
    Crash,
    /// The process dies with its disk.
    CrashAndLoseDisk,
    /// The process dies, and its disk goes back to an earlier batch, as after a power loss.
    CrashAndOlderDisk,
    /// The call takes up to nine seconds, while its heartbeats go on. The transaction times out after six.
    Stall,
    /// The process and its heartbeats stop for up to eight seconds. Its session expires after three.
    Freeze,
    /// Another process joins the group.
    Join,
    /// The process stops, leaves the group, and joins again later.
    Leave,
    /// The wall clock jumps by up to two days.
    Clock,
    /// The request is lost.
    Lost,
    /// The response is lost.
    AnswerLost,
    /// The request's connection breaks, but the request still arrives later, between other requests.
    Late,
    /// The response takes seconds.
    Slow,
    /// The broker rejects the request with a retriable error.
    Refused,
    /// The process is cut off: for a while, none of its requests arrive.
    Cut,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 14] = [
        Kind::Crash,
        Kind::CrashAndLoseDisk,
        Kind::CrashAndOlderDisk,
        Kind::Stall,
        Kind::Freeze,
        Kind::Join,
        Kind::Leave,
        Kind::Clock,
        Kind::Lost,
        Kind::AnswerLost,
        Kind::Late,
        Kind::Slow,
        Kind::Refused,
        Kind::Cut,
    ];

    /// Returns whether the fault can occur at a place. Requests fail on the network, calls and writes in the process.
    #[must_use]
    pub fn fits(self, place: Place) -> bool {
        let network = matches!(
            self,
            Kind::Lost | Kind::AnswerLost | Kind::Late | Kind::Slow | Kind::Refused
        );
        match place {
            // A late commit resets the offset until the next commit. At-least-once allows this, but an idle partition
            // would then never reach its end.
            Place::Request(Api(ApiKey::OffsetCommit)) if self == Kind::Late => false,
            Place::Request(_) => network || self == Kind::Cut,
            // No time can pass for other processes during a write to a disk.
            Place::Opened(_) | Place::Disk(_) => {
                !network && !matches!(self, Kind::Stall | Kind::Cut)
            }
            Place::Call(..) => !network,
        }
    }
}

/// A fault at the n-th pass of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The place.
    pub place: Place,
    /// The number of the pass, from 1.
    pub nth: u64,
    /// The kind.
    pub kind: Kind,
}

impl Place {
    /// Returns the places at which the transaction machine and its dependencies can be hit.
    #[must_use]
    pub fn all() -> Vec<Place> {
        use CallSite::{
            Abort, Assign, Begin, Commit, Committed, ConsumerCommit, Flush, Init, Seek, Send,
            SendOffsets, Take, Unassign,
        };
        let calls = [
            Init,
            Begin,
            Send,
            SendOffsets,
            Flush,
            Commit,
            ConsumerCommit,
            Abort,
            Assign,
            Unassign,
            Seek,
        ];
        let both = calls.into_iter().flat_map(|call| {
            [
                Place::Call(call, Edge::Before),
                Place::Call(call, Edge::After),
            ]
        });
        // These calls are queries, which have no effect before they return.
        let asked = [Take, Committed, CallSite::Bounds].map(|call| Place::Call(call, Edge::After));
        let disk = [
            Place::Opened(Edge::Before),
            Place::Opened(Edge::After),
            Place::Disk(Edge::Before),
            Place::Disk(Edge::After),
        ];
        let requests = [
            ApiKey::InitProducerId,
            ApiKey::AddPartitionsToTxn,
            ApiKey::Produce,
            ApiKey::AddOffsetsToTxn,
            ApiKey::TxnOffsetCommit,
            ApiKey::EndTxn,
            ApiKey::OffsetCommit,
            ApiKey::JoinGroup,
            ApiKey::SyncGroup,
            ApiKey::Heartbeat,
            ApiKey::LeaveGroup,
            ApiKey::OffsetFetch,
            ApiKey::ListOffsets,
            ApiKey::Fetch,
        ];
        let requests = requests.map(|key| Place::Request(Api(key)));
        both.chain(asked).chain(disk).chain(requests).collect()
    }
}

impl Place {
    /// Returns the weight in the draw. Rare places weigh more, because most faults at a rare place would never occur.
    pub(crate) fn weight(self) -> usize {
        match self {
            Place::Request(Api(ApiKey::LeaveGroup)) => 32,
            Place::Call(CallSite::Seek, _) => 12,
            Place::Call(CallSite::Abort, _) => 10,
            Place::Disk(_) => 8,
            Place::Opened(_) | Place::Call(CallSite::Unassign, _) => 4,
            Place::Call(CallSite::Committed | CallSite::Init, _)
            | Place::Request(Api(ApiKey::OffsetFetch)) => 2,
            _ => 1,
        }
    }

    /// Returns whether the call can be repeated, so that its result may come later.
    pub(crate) fn can_wait(self) -> bool {
        use CallSite::{Abort, Commit, Flush, Init, SendOffsets};
        matches!(
            self,
            Place::Call(Init | SendOffsets | Flush | Commit | Abort, _)
        )
    }
}

/// Returns the errors with which a broker may reject this request temporarily. A retry succeeds.
pub(crate) fn passing(key: ApiKey) -> &'static [ResponseError] {
    use ResponseError::{
        ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable,
        LeaderNotAvailable, NotCoordinator, NotLeaderOrFollower, RebalanceInProgress,
        RequestTimedOut, UnstableOffsetCommit,
    };
    match key {
        ApiKey::InitProducerId
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn => &[
            CoordinatorLoadInProgress,
            CoordinatorNotAvailable,
            NotCoordinator,
            ConcurrentTransactions,
        ],
        ApiKey::SyncGroup | ApiKey::Heartbeat => {
            &[CoordinatorNotAvailable, NotCoordinator, RebalanceInProgress]
        }
        ApiKey::OffsetFetch => &[
            CoordinatorLoadInProgress,
            NotCoordinator,
            UnstableOffsetCommit,
        ],
        ApiKey::Produce => &[NotLeaderOrFollower, RequestTimedOut],
        ApiKey::ListOffsets | ApiKey::Fetch => &[NotLeaderOrFollower, LeaderNotAvailable],
        _ => &[
            CoordinatorLoadInProgress,
            CoordinatorNotAvailable,
            NotCoordinator,
        ],
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = |edge: &Edge| match edge {
            Edge::Before => "before",
            Edge::After => "after",
        };
        match self {
            Place::Call(call, at) => write!(f, "{} {call:?}", edge(at)),
            Place::Opened(at) => write!(f, "{} a first write to disk", edge(at)),
            Place::Disk(at) => write!(f, "{} a write to disk", edge(at)),
            Place::Request(api) => write!(f, "request {:?}", api.0),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} #{}", self.kind, self.place, self.nth)
    }
}
