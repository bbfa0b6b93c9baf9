//! Transactions from the outside: which are known, in which state.

use anyhow::Result;
use kafka_protocol::messages::ListTransactionsRequest;

use super::client::Client;
use super::failure::check;
use super::routing::Node;

/// A transactional id and the state of its latest transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionState {
    /// The transactional id.
    pub transactional_id: String,
    /// The producer id it has now.
    pub producer_id: i64,
    /// `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`,
    /// `PrepareEpochFence` or `Dead`.
    pub state: String,
}

impl TransactionState {
    /// Whether a transaction is begun and its end is not written everywhere.
    pub fn is_open(&self) -> bool {
        self.state == "Ongoing" || self.state.starts_with("Prepare")
    }
}

impl Client {
    /// Every transactional id the cluster knows, with the state of its latest transaction.
    ///
    /// # Errors
    /// When a broker does not answer in time: a list without its share would hide open
    /// transactions.
    pub fn transactions(&mut self) -> Result<Vec<TransactionState>> {
        self.retry("list transactions", |client, deadline| {
            let mut states = Vec::new();
            for broker in client.broker_ids(deadline)? {
                let request = ListTransactionsRequest::default();
                let answer = client.exchange(Node::Broker(broker), &request, deadline)?;
                check(answer.error_code, || format!("broker {broker}"))?;
                states.extend(
                    answer
                        .transaction_states
                        .iter()
                        .map(|known| TransactionState {
                            transactional_id: known.transactional_id.to_string(),
                            producer_id: known.producer_id.0,
                            state: known.transaction_state.to_string(),
                        }),
                );
            }
            Ok(states)
        })
    }
}
