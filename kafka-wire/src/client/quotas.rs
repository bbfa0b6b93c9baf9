//! Quotas, which slow down brokers on purpose.

use anyhow::Result;
use kafka_protocol::messages::alter_client_quotas_request::{
    AlterClientQuotasRequest, EntityData, EntryData, OpData,
};

use super::Client;
use super::routing::Node;
use crate::connection::check;
use crate::requests::text;

impl Client {
    /// Sets a quota of every client id, such as `producer_byte_rate`. `None` removes it.
    ///
    /// # Errors
    /// If the brokers reject the request, or do not respond in time.
    pub fn set_quota(&mut self, key: &str, value: Option<f64>) -> Result<()> {
        let everybody = EntityData::default()
            .with_entity_type(text("client-id"))
            .with_entity_name(None);
        let change = OpData::default()
            .with_key(text(key))
            .with_value(value.unwrap_or_default())
            .with_remove(value.is_none());
        let entry = EntryData::default()
            .with_entity(vec![everybody])
            .with_ops(vec![change]);
        let request = AlterClientQuotasRequest::default().with_entries(vec![entry]);
        self.retry(&format!("set the quota {key}"), |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            let mut entries = answer.entries.iter();
            entries.try_for_each(|entry| check(entry.error_code, || key.to_owned()))
        })
    }
}
