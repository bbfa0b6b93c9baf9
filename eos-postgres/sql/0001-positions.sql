-- The tables of eos, version 1. All statements run in one transaction.
CREATE SCHEMA IF NOT EXISTS eos;

CREATE TABLE eos.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL,
  incarnation uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO eos.meta (version) VALUES (1);

-- The position of each input partition, committed with the rows of its records. An epoch fences former owners.
CREATE TABLE eos.positions (
  app text NOT NULL,
  topic text NOT NULL,
  partition int NOT NULL,
  next_offset bigint,                        -- NULL: taken over, nothing committed yet
  name text NOT NULL DEFAULT '',             -- the transaction that set next_offset
  epoch bigint NOT NULL,
  owner bigint NOT NULL,                     -- a random number of the process
  cluster_id text NOT NULL DEFAULT '',       -- empty: not known
  topic_id text NOT NULL DEFAULT '',         -- empty: not known
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (app, topic, partition)
) WITH (fillfactor = 40, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The newest session of each worker. A newer one ends the older ones.
CREATE TABLE eos.sessions (
  identity text PRIMARY KEY,
  epoch bigint NOT NULL,
  owner bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 40);

-- The ids of messages that had their effects.
CREATE TABLE eos.inbox (
  subscriber text NOT NULL,
  message_id bytea NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (subscriber, message_id)
);
CREATE INDEX inbox_seen_at ON eos.inbox (seen_at);

-- Records that have failed: their rows were refused, or their app gave them up.
CREATE TABLE eos.dead_letters (
  app text NOT NULL,
  topic text NOT NULL,
  partition int NOT NULL,
  "offset" bigint NOT NULL,
  generation int NOT NULL DEFAULT 0,
  place text NOT NULL,                       -- the place of the refused row, or the name of the app's dead letters
  sqlstate text NOT NULL,                    -- empty: the database refused nothing
  message text NOT NULL,
  key bytea,                                 -- key and value of a record that its app gave up
  value bytea,
  rows bytea,                                -- all rows of a refused record: JSON in UTF-8
  headers bytea NOT NULL,                    -- name and value, each with its length as int4; length -1: null
  at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (app, topic, partition, "offset", generation)
);
