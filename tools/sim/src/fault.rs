//! What goes wrong, and where.

use std::fmt;

use eos_protocol::CallSite;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use eos_testkit::client::Edge;

/// Where something can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// At a call into the client.
    Call(CallSite, Edge),
    /// At one of the first writes to a task's database since it was opened: those of a restore, if there is one.
    Opened(Edge),
    /// At a later write to it.
    Disk(Edge),
    /// On the way of a request.
    Request(Api),
}

/// A request, in an order of its own.
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

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The process dies; it is started again with what its disk holds.
    Crash,
    /// The process dies with its disk.
    CrashAndLoseDisk,
    /// The process dies, and its disk goes back to an earlier batch, as after a power loss.
    CrashAndOlderDisk,
    /// The call takes up to nine seconds, while its heartbeats go on: the transaction times out after six.
    Stall,
    /// The process stands still, its heartbeats too, for up to eight seconds; its session is over after three.
    Freeze,
    /// Another process joins the group.
    Join,
    /// The process stops, leaves the group, and comes back.
    Leave,
    /// The wall clock jumps by up to two days.
    Clock,
    /// The request is lost.
    Lost,
    /// Its answer is lost.
    AnswerLost,
    /// Its connection breaks; it arrives all the same, in the middle of something else.
    Late,
    /// Its answer takes seconds.
    Slow,
    /// It is refused with an error that says to ask again.
    Refused,
    /// From here on nothing of this process arrives, for a while: it is cut off.
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

    /// Whether it can happen there: requests go wrong on the network, calls and writes in the process.
    #[must_use]
    pub fn fits(self, place: Place) -> bool {
        let network = matches!(
            self,
            Kind::Lost | Kind::AnswerLost | Kind::Late | Kind::Slow | Kind::Refused
        );
        match place {
            // A late commit sets the offset back until the next commit. At-least-once allows that, but an idle
            // partition would then never reach its end.
            Place::Request(Api(ApiKey::OffsetCommit)) if self == Kind::Late => false,
            Place::Request(_) => network || self == Kind::Cut,
            // A write to a disk is not a moment at which time can pass for others.
            Place::Opened(_) | Place::Disk(_) => {
                !network && !matches!(self, Kind::Stall | Kind::Cut)
            }
            Place::Call(..) => !network,
        }
    }
}

/// One fault: the n-th time that something comes by a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// The how manyth time, from 1.
    pub nth: u64,
    /// What.
    pub kind: Kind,
}

impl Place {
    /// Where the transaction machine and what it rests on can be hit.
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
        // These ask: before they are answered nothing has happened.
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
    /// How much more often than others it is drawn: what seldom comes by is waited for in vain most of the time.
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

    /// The call can be made again, so that its answer can come later.
    pub(crate) fn can_wait(self) -> bool {
        use CallSite::{Abort, Commit, Flush, Init, SendOffsets};
        matches!(
            self,
            Place::Call(Init | SendOffsets | Flush | Commit | Abort, _)
        )
    }
}

/// The errors that a broker may refuse this with although nothing is wrong: who asks again gets what he wants.
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
