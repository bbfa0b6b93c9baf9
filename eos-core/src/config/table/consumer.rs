//! librdkafka's properties of consumers.

use super::{Clients, Kind, Property, number, passed};

#[rustfmt::skip] // A table: one row per line.
pub(super) const ROWS: &[Property] = &[
    passed("group.remote.assignor", Clients::Consumer, Kind::Text, "", "The broker's assignor under `group.protocol=consumer`; the broker chooses if it is empty."),
    passed("coordinator.query.interval.ms", Clients::Consumer, number(1, 3_600_000), "600000", "How often the client looks up the group's coordinator."),
    passed("queued.min.messages", Clients::Consumer, number(1, 10_000_000), "", "How many records per partition the client tries to fetch ahead; by default 24 MiB divided by the partitions of all inputs and by 448, 585 to 9362."),
    passed("queued.max.messages.kbytes", Clients::Consumer, number(1, 2_097_151), "", "How much may wait to be processed, in KiB of keys and values, per partition; by default 24 MiB divided by the partitions of all inputs, 256 to 4096."),
    passed("fetch.wait.max.ms", Clients::Consumer, number(0, 300_000), "", "How long a broker may wait for `fetch.min.bytes`; by default 25 for an app with several input topics (including repartition topics), otherwise 100."),
    passed("fetch.queue.backoff.ms", Clients::Consumer, number(0, 300_000), "2", "How long a fetch waits after the queue was found full."),
    passed("fetch.message.max.bytes", Clients::Consumer, number(1, 1_000_000_000), "", "How much of one partition a fetch requests, at first; by default 1048576 for up to 6 partitions of all inputs, and less with the square of their number, down to 65536 from 24 on; with stores 24 MiB divided by the partitions and by 16, 65536 to 262144."),
    passed("max.partition.fetch.bytes", Clients::Consumer, number(1, 1_000_000_000), "", "The same as `fetch.message.max.bytes`."),
    passed("fetch.max.bytes", Clients::Consumer, number(0, 2_147_483_135), "52428800", "The largest response to a fetch, in bytes; a larger first batch is returned nevertheless."),
    passed("fetch.min.bytes", Clients::Consumer, number(1, 100_000_000), "1", "How many bytes a broker gathers before it responds."),
    passed("fetch.error.backoff.ms", Clients::Consumer, number(0, 300_000), "500", "How long a fetch waits after a failed one."),
    passed("check.crcs", Clients::Consumer, Kind::Flag, "false", "Whether the checksums of fetched batches are checked."),
];
