//! The inputs and outputs of the model.

use kafka_protocol::messages::{ApiKey, RequestKind, ResponseKind};

/// The id of a request, which its response carries, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A decoded request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The id of the request.
    pub ticket: Ticket,
    /// The version of the request.
    pub version: i16,
    /// The `client.id`.
    pub client_id: String,
    /// The client's host.
    pub host: String,
    /// The body of the request.
    pub body: RequestKind,
}

impl Request {
    /// Returns a request of a client without a `client.id`.
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
    /// Returns the API of the request, if the broker serves it.
    pub(crate) fn key(&self) -> Option<ApiKey> {
        key_of(&self.body)
    }
}

/// Returns the API of a request, if the broker serves it.
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

/// The result of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one, and none is kept"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// The response.
    Answer(Ticket, ResponseKind),
    /// The request has no response.
    Nothing(Unanswered),
    /// The connection must be closed.
    Disconnect(Ticket),
}

/// A request without a response, and the effect on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// No response is expected (acks=0). The connection continues.
    Done(Ticket),
    /// The request or its response was lost. No later bytes overtake lost bytes on a connection. The connection must
    /// read and discard all later requests of the client, without applying them or responding, until the client closes
    /// it.
    Lost(Ticket),
}

impl Output {
    /// Returns the ticket of the request.
    pub fn ticket(&self) -> Ticket {
        match self {
            Output::Answer(ticket, _) | Output::Disconnect(ticket) => *ticket,
            Output::Nothing(Unanswered::Done(ticket) | Unanswered::Lost(ticket)) => *ticket,
        }
    }
}
