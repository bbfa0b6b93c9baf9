//! Limits of connections and requests.

/// Limits of connections and requests. Those of the broker's memory are in
/// [`BrokerOptions`](crate::broker::BrokerOptions).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// `socket.request.max.bytes`: a longer request closes its connection.
    pub socket_request_max_bytes: usize,
    /// `max.connections`: an additional connection is closed at once.
    pub max_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            socket_request_max_bytes: 100 << 20,
            max_connections: 5_000,
        }
    }
}
