//! The version of each request.
//!
//! A request uses the newest version that both sides support, but never a version above those that this client was
//! written for. Later versions change the meaning, not only fields. Produce 12 adds partitions to transactions by
//! itself, Fetch 13 and Produce 13 name topics by id, and AddPartitionsToTxn 4 is between brokers only.

use std::collections::HashMap;

use anyhow::{Result, bail};
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse};
use kafka_protocol::protocol::Request;

use crate::frame::api_name;

/// The version of ApiVersions in the first request. Every broker since 2.4 supports it.
pub(super) const API_VERSIONS: i16 = 3;

/// The versions that one broker supports: API key → oldest and newest version.
#[derive(Debug, Default)]
pub(super) struct Versions(HashMap<i16, (i16, i16)>);

impl Versions {
    /// Returns the versions in the broker's response.
    pub(super) fn of(response: &ApiVersionsResponse) -> Self {
        let range = |api: &kafka_protocol::messages::api_versions_response::ApiVersion| {
            (api.api_key, (api.min_version, api.max_version))
        };
        Versions(response.api_keys.iter().map(range).collect())
    }

    /// Returns the version of request `R` to use.
    pub(super) fn pick<R: Request>(&self) -> Result<i16> {
        let Some(&(oldest, newest)) = self.0.get(&R::KEY) else {
            bail!(
                "the broker does not support {}: use Apache Kafka 4.x",
                api_name(R::KEY)
            );
        };
        let ours = newest_spoken(R::KEY).min(R::VERSIONS.max);
        let version = newest.min(ours);
        if version < oldest || version < R::VERSIONS.min {
            bail!(
                "the broker supports {} {oldest}..={newest}, this client {}..={ours}: use Apache \
                 Kafka 4.x",
                api_name(R::KEY),
                R::VERSIONS.min
            );
        }
        Ok(version)
    }
}

/// Returns the newest version of a request that this client was written for.
fn newest_spoken(key: i16) -> i16 {
    match ApiKey::try_from(key) {
        Ok(ApiKey::Produce) => 11,
        Ok(ApiKey::Fetch) => 12,
        Ok(ApiKey::ListOffsets) => 7,
        Ok(ApiKey::Metadata) => 12,
        Ok(ApiKey::OffsetCommit | ApiKey::OffsetFetch) => 9,
        Ok(ApiKey::DescribeGroups | ApiKey::DeleteTopics) => 5,
        Ok(ApiKey::FindCoordinator | ApiKey::InitProducerId | ApiKey::EndTxn) => 4,
        Ok(ApiKey::AddPartitionsToTxn | ApiKey::AddOffsetsToTxn | ApiKey::TxnOffsetCommit) => 3,
        Ok(ApiKey::ListTransactions) => 0,
        _ => i16::MAX,
    }
}
