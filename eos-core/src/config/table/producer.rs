//! librdkafka's properties of producers.

use super::{Clients, Kind, Property, number, passed};

#[rustfmt::skip] // A table: one row per line.
pub(super) const ROWS: &[Property] = &[
    passed("queue.buffering.max.kbytes", Clients::Producer, number(1, 2_147_483_647), "262144", "How much may wait to be sent, in KiB."),
    passed("queue.buffering.max.ms", Clients::Producer, Kind::Decimal { least: 0, most: 900_000 }, "20", "The same as `linger.ms`."),
    passed("linger.ms", Clients::Producer, Kind::Decimal { least: 0, most: 900_000 }, "20", "How long a record waits for others of its batch; a commit sends waiting records at once."),
    passed("queue.buffering.backpressure.threshold", Clients::Producer, number(1, 1_000_000), "1", "From this number of waiting requests on, records are gathered into larger batches."),
    passed("compression.codec", Clients::Producer, Kind::OneOf(&["none", "gzip", "snappy", "lz4", "zstd"]), "none", "How batches are compressed."),
    passed("compression.type", Clients::Producer, Kind::OneOf(&["none", "gzip", "snappy", "lz4", "zstd"]), "none", "The same as `compression.codec`."),
    passed("batch.num.messages", Clients::Producer, number(1, 1_000_000), "10000", "The most records of one batch."),
    passed("batch.size", Clients::Producer, number(1, 2_147_483_647), "1000000", "The largest batch, in bytes, framing included."),
    passed("request.timeout.ms", Clients::Producer, number(1, 900_000), "30000", "How long a broker may wait for the in-sync replicas."),
    passed("compression.level", Clients::Producer, number(-1, 12), "-1", "How hard to compress; -1 is the codec's default."),
];
