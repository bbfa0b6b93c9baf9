//! The served requests and their versions.
//!
//! Newer versions that require more than this broker supports are left out. Produce 12 and TxnOffsetCommit 5 belong to
//! the second transaction protocol, and Fetch 13 names topics by id.

use kafka_protocol::messages::ApiKey;

/// A request and its served versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// The API of the request.
    pub key: ApiKey,
    /// The oldest served version.
    pub min: i16,
    /// The newest served version.
    pub max: i16,
    /// The oldest advertised version.
    ///
    /// As in Kafka, it is 0 for Produce. Otherwise, librdkafka would treat the broker as one without compression.
    pub advertised_min: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> Api {
    Api {
        key,
        min,
        max,
        advertised_min: min,
    }
}

/// All served requests.
pub const SERVED: [Api; 33] = [
    Api {
        key: ApiKey::Produce,
        min: 3,
        max: 11,
        advertised_min: 0,
    },
    api(ApiKey::Fetch, 4, 12),
    api(ApiKey::ListOffsets, 1, 7),
    api(ApiKey::Metadata, 0, 12),
    api(ApiKey::OffsetCommit, 2, 9),
    api(ApiKey::OffsetFetch, 1, 9),
    api(ApiKey::FindCoordinator, 0, 4),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::ApiVersions, 0, 4),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4),
    api(ApiKey::AddPartitionsToTxn, 0, 3),
    api(ApiKey::AddOffsetsToTxn, 0, 3),
    api(ApiKey::EndTxn, 0, 3),
    api(ApiKey::TxnOffsetCommit, 0, 3),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 2),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::DescribeCluster, 0, 1),
    api(ApiKey::DescribeProducers, 0, 0),
    api(ApiKey::DescribeTransactions, 0, 0),
    api(ApiKey::ListTransactions, 0, 1),
];

impl Api {
    /// Returns the served versions of a request, if it is served.
    pub fn of(key: i16) -> Option<Api> {
        SERVED.iter().copied().find(|api| api.key as i16 == key)
    }

    /// Returns whether a version is served.
    pub fn serves(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codecs_know_every_version_that_is_served() {
        for api in SERVED {
            let known = api.key.valid_versions();
            assert!(api.min >= known.min && api.max <= known.max, "{api:?}");
            assert!(api.serves(api.min) && api.serves(api.max) && !api.serves(api.max + 1));
        }
    }
}
