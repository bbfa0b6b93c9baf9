//! What goes in and what comes out.

use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

/// Names a request; its answer carries the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A request, decoded.
#[derive(Debug, Clone)]
pub struct Request {
    /// Names it.
    pub ticket: Ticket,
    /// The version it was sent in.
    pub version: i16,
    /// The client's name for itself (`client.id`).
    pub client_id: String,
    /// Where the client is.
    pub host: String,
    /// What is asked.
    pub body: RequestKind,
}

impl Request {
    /// A request of a client without a name.
    pub fn new(ticket: Ticket, version: i16, body: RequestKind) -> Request {
        Request {
            ticket,
            version,
            client_id: String::new(),
            host: String::from("/127.0.0.1"),
            body,
        }
    }
}

impl Request {
    /// Which request it is, if it is one that is served.
    pub(crate) fn key(&self) -> Option<ApiKey> {
        key_of(&self.body)
    }
}

/// The API of a request, if the broker serves it.
#[must_use]
pub fn key_of(body: &RequestKind) -> Option<ApiKey> {
    Some(match body {
        RequestKind::Produce(_) => ApiKey::Produce,
        RequestKind::Fetch(_) => ApiKey::Fetch,
        RequestKind::ListOffsets(_) => ApiKey::ListOffsets,
        RequestKind::Metadata(_) => ApiKey::Metadata,
        RequestKind::OffsetCommit(_) => ApiKey::OffsetCommit,
        RequestKind::OffsetFetch(_) => ApiKey::OffsetFetch,
        RequestKind::FindCoordinator(_) => ApiKey::FindCoordinator,
        RequestKind::JoinGroup(_) => ApiKey::JoinGroup,
        RequestKind::Heartbeat(_) => ApiKey::Heartbeat,
        RequestKind::LeaveGroup(_) => ApiKey::LeaveGroup,
        RequestKind::SyncGroup(_) => ApiKey::SyncGroup,
        RequestKind::ApiVersions(_) => ApiKey::ApiVersions,
        RequestKind::CreateTopics(_) => ApiKey::CreateTopics,
        RequestKind::DeleteTopics(_) => ApiKey::DeleteTopics,
        RequestKind::DeleteRecords(_) => ApiKey::DeleteRecords,
        RequestKind::InitProducerId(_) => ApiKey::InitProducerId,
        RequestKind::AddPartitionsToTxn(_) => ApiKey::AddPartitionsToTxn,
        RequestKind::AddOffsetsToTxn(_) => ApiKey::AddOffsetsToTxn,
        RequestKind::EndTxn(_) => ApiKey::EndTxn,
        RequestKind::TxnOffsetCommit(_) => ApiKey::TxnOffsetCommit,
        RequestKind::DescribeConfigs(_) => ApiKey::DescribeConfigs,
        RequestKind::AlterConfigs(_) => ApiKey::AlterConfigs,
        RequestKind::IncrementalAlterConfigs(_) => ApiKey::IncrementalAlterConfigs,
        RequestKind::CreatePartitions(_) => ApiKey::CreatePartitions,
        RequestKind::OffsetForLeaderEpoch(_) => ApiKey::OffsetForLeaderEpoch,
        RequestKind::OffsetDelete(_) => ApiKey::OffsetDelete,
        RequestKind::DescribeGroups(_) => ApiKey::DescribeGroups,
        RequestKind::ListGroups(_) => ApiKey::ListGroups,
        RequestKind::DeleteGroups(_) => ApiKey::DeleteGroups,
        RequestKind::DescribeCluster(_) => ApiKey::DescribeCluster,
        RequestKind::DescribeProducers(_) => ApiKey::DescribeProducers,
        RequestKind::DescribeTransactions(_) => ApiKey::DescribeTransactions,
        RequestKind::ListTransactions(_) => ApiKey::ListTransactions,
        _ => return None,
    })
}

/// What becomes of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Its answer.
    Answer(Ticket, ResponseKind),
    /// It is not answered.
    Nothing(Unanswered),
    /// Its connection is closed.
    Disconnect(Ticket),
}

/// A request that is not answered, and what that means for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// No answer is expected (acks=0): its connection goes on.
    Done(Ticket),
    /// The request or its answer was lost. Nothing overtakes what is lost on a connection: whatever its client
    /// sends there from now on has to be read and thrown away, neither applied nor answered, until the client
    /// closes it.
    Lost(Ticket),
}

impl Output {
    /// Of which request it is.
    pub fn ticket(&self) -> Ticket {
        match self {
            Output::Answer(ticket, _) | Output::Disconnect(ticket) => *ticket,
            Output::Nothing(Unanswered::Done(ticket) | Unanswered::Lost(ticket)) => *ticket,
        }
    }
}
