//! The check before a start names every mistake and its fix.

use std::time::{Duration, Instant};

use eos_core::boundary::{Ledger, LedgerError, LedgerFailure};
use eos_postgres::testing::{Cluster, run};
use eos_postgres::tokio_postgres::{self, Client, NoTls};
use eos_postgres::{AnyType, Json, Postgres, Refused};
use tokio::runtime::Runtime;

use crate::support::{Register, cluster, database, plan, rows};

/// `App::start_blocking` may be called on a thread of a tokio runtime.
#[test]
fn a_check_runs_on_a_thread_of_a_runtime() {
    let shop = Postgres::connect(&database("runtime", "")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async { check(&shop, &[]).unwrap() });
}

pub(crate) fn check(shop: &Postgres, places: &[String]) -> Result<(), LedgerError> {
    shop.check(&plan(places), Duration::from_secs(10))
}

pub(crate) fn mistakes(shop: &Postgres, places: &[String]) -> String {
    let error = check(shop, places).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    error.text
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

#[test]
fn a_good_database_passes() {
    let url = database(
        "good",
        "CREATE SCHEMA s; CREATE TABLE s.t (a text, b int, UNIQUE (b, a))",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = shop
        .table::<String, i64>("s.t")
        .key("a", |k, _| k.clone())
        .key("b", |_, v| *v);
    check(&shop, &[table.register()]).unwrap();
}

#[test]
fn all_mistakes_are_listed() {
    let url = database(
        "mistakes",
        "CREATE TABLE a (x text, y int, z int NOT NULL); CREATE UNLOGGED TABLE b (x text);
         CREATE VIEW c AS SELECT 1 AS x; CREATE TABLE d (x text PRIMARY KEY DEFERRABLE);
         CREATE TABLE e (x int) PARTITION BY RANGE (x); CREATE UNLOGGED TABLE e1 PARTITION OF e DEFAULT;
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;
         CREATE FOREIGN TABLE f (x text) SERVER far;
         CREATE FOREIGN TABLE e2 PARTITION OF e FOR VALUES FROM (0) TO (9) SERVER far",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = |name: &str| shop.table::<String, i64>(name);
    let x = |name: &str| table(name).column("x", |k, _| k.clone()).register();
    let places = [
        table("a")
            .key("x", |k, _| k.clone())
            .column("y", |k, _| k.clone())
            .column("missing", |_, v| *v)
            .register(),
        x("b"),
        x("c"),
        table("d").key("x", |k, _| k.clone()).register(),
        table("e").column("x", |_, v| *v).register(),
        x("f"),
        x("nowhere"),
        shop.statement::<String, i64>("s", "UPDATE nowhere SET x = 1")
            .register(),
        shop.statement::<String, i64>("n", "SELECT $1::int8")
            .register(),
    ];
    assert_contains(
        &mistakes(&shop, &places),
        &[
            "column a.y has type integer, and the value is a text",
            "table a has no column missing: it has x, y, z",
            "CREATE UNIQUE INDEX ON \"public\".\"a\" (\"x\")",
            "column a.z is NOT NULL without a default",
            "table b is UNLOGGED",
            "table c is a view",
            "CREATE UNIQUE INDEX ON \"public\".\"d\"",
            "table e1 is UNLOGGED",
            "table e2 is a foreign table",
            "table f is a foreign table",
            "table nowhere does not exist",
            "statement s is refused by the server",
            "statement n has 1 parameters in its text, and 0 calls",
        ],
    );
    // A session refuses as well, for apps whose database changes later.
    let identity = eos_core::boundary::Identity {
        worker: "w".into(),
        owner: 1,
    };
    let mut session = shop.session(&plan(&places), &identity).unwrap();
    let error = crate::support::wait(|slice| session.init(slice)).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal);
}

/// C2 of the design. A statement has no table in its definition, but the server knows which tables it writes.
#[test]
fn a_statement_that_writes_a_table_without_a_log_is_refused() {
    let url = database("statement_targets", TARGETS);
    let shop = Postgres::connect(&url).unwrap();
    let cases = [
        ("INSERT INTO audit VALUES ('a')", "audit"),
        ("WITH a AS (DELETE FROM audit RETURNING x) TABLE a", "audit"),
        ("UPDATE seen SET x = 'a'", "audit"),
        ("INSERT INTO parts VALUES (1)", "parts_1"),
        ("UPDATE family SET x = 'a'", "child"),
        ("INSERT INTO ruled VALUES ('a')", "audit"),
        ("INSERT INTO far VALUES ('a')", "far"),
        // A statement may read such a table, and write through a view of a good one.
        ("INSERT INTO good SELECT x FROM audit", ""),
        ("UPDATE fine SET x = 'a'", ""),
    ];
    for (at, (sql, table)) in cases.into_iter().enumerate() {
        let name = format!("s{at}");
        let place = shop.statement::<String, i64>(&name, sql).register();
        if table.is_empty() {
            check(&shop, &[place]).unwrap_or_else(|error| panic!("{sql}: {error}"));
            continue;
        }
        let reason = match table {
            "far" => "is a foreign table",
            _ => "is UNLOGGED",
        };
        let expected = format!("statement {name} writes table {table}, which {reason}");
        assert_contains(&mistakes(&shop, std::slice::from_ref(&place)), &[&expected]);
        // The table may have changed since the start.
        let identity = eos_core::boundary::Identity {
            worker: "w".into(),
            owner: 1,
        };
        let mut session = shop.session(&plan(&[place]), &identity).unwrap();
        let error = crate::support::wait(|slice| session.init(slice)).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Fatal);
        assert_contains(&error.text, &[&expected]);
    }
}

const TARGETS: &str = "CREATE UNLOGGED TABLE audit (x text); CREATE VIEW seen AS SELECT x FROM audit;
    CREATE TABLE parts (x int) PARTITION BY RANGE (x); CREATE UNLOGGED TABLE parts_1 PARTITION OF parts DEFAULT;
    CREATE TABLE family (x text); CREATE UNLOGGED TABLE child () INHERITS (family);
    CREATE TABLE good (x text); CREATE VIEW fine AS SELECT x FROM good;
    CREATE TABLE ruled (x text); CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO audit VALUES (NEW.x);
    CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;
    CREATE FOREIGN TABLE far (x text) SERVER far";

/// M6 of the design: rows of a table are sent in chunks, and a statement for each record.
#[test]
fn a_table_that_a_statement_writes_as_well_is_refused() {
    let url = database(
        "overlap",
        "CREATE TABLE t (x int) PARTITION BY RANGE (x); CREATE TABLE t_1 PARTITION OF t DEFAULT;
         CREATE TABLE other (x int)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let t = shop
        .table::<String, i64>("t")
        .column("x", |_, v| *v)
        .register();
    let statement = |name: &str, sql: &str| shop.statement::<String, i64>(name, sql).register();
    let places = [
        t.clone(),
        statement("one", "UPDATE t SET x = 1"),
        statement("leaf", "DELETE FROM t_1"),
    ];
    assert_contains(
        &mistakes(&shop, &places),
        &[
            "statement one and table t write the same table t,",
            "statement leaf and table t write the same table t_1,",
            "use statements for both, or `.apply(..)` instead of statement one",
        ],
    );
    let apart = [
        t,
        statement("more", "INSERT INTO other SELECT x FROM t"),
        statement("again", "UPDATE other SET x = 1"),
    ];
    check(&shop, &apart).unwrap();
}

#[test]
fn a_table_with_two_names_is_refused() {
    let url = database(
        "two_names",
        "CREATE TABLE t (x int) PARTITION BY LIST (x); CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);
         CREATE TABLE t_2 PARTITION OF t DEFAULT; CREATE TABLE plain (x int)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = |name: &str| {
        shop.table::<String, i64>(name)
            .column("x", |_, v| *v)
            .register()
    };
    let places = ["plain", "public.plain", "t", "t_1"].map(table);
    assert_contains(
        &mistakes(&shop, &places),
        &[
            "table plain and table public.plain write to one table,",
            "table t and table t_1 write to one table,",
            "merge the streams and use one definition",
        ],
    );
    check(&shop, &["plain", "t_1", "t_2"].map(table)).unwrap();
}

/// An update or a deletion of a table writes the children that inherit from it, and an insert does not.
#[test]
fn children_that_a_table_writes_are_checked() {
    let url = database(
        "children",
        "CREATE TABLE fam (x text PRIMARY KEY, y bigint); CREATE TABLE kid () INHERITS (fam);
         CREATE UNLOGGED TABLE lost () INHERITS (kid)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let sum = (shop
        .table::<String, i64>("fam")
        .record_key("x", |x| x.clone()))
    .add("y", |_, y| *y);
    let kid = (shop.table::<String, i64>("kid")).column("x", |x, _| x.clone());
    let places = [sum.register(), kid.register()];
    assert_contains(&mistakes(&shop, &places), &["table lost is UNLOGGED"]);
    run(&url, "DROP TABLE lost").unwrap();
    let expected = "table fam and table kid write to one table,";
    assert_contains(&mistakes(&shop, &places), &[expected]);
    let other = Postgres::connect(&url).unwrap();
    let rows = (other.table::<String, i64>("fam")).column("x", |x, _| x.clone());
    let kid = (other.table::<String, i64>("kid")).column("x", |x, _| x.clone());
    check(&other, &[rows.register(), kid.register()]).unwrap();
}

#[test]
fn the_type_under_several_domains_counts() {
    let url = database(
        "domains",
        "CREATE DOMAIN a AS int8; CREATE DOMAIN b AS a; CREATE DOMAIN c AS float8; CREATE DOMAIN d AS c;
         CREATE TABLE t (n b); CREATE TABLE folded (n d PRIMARY KEY)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let good = (shop.table::<String, i64>("t")).column("n", |_, n| *n);
    check(&shop, &[good.register()]).unwrap();
    let folded = (shop.table::<String, i64>("folded")).key("n", |_, n| AnyType(n.to_string()));
    assert_contains(
        &mistakes(&shop, &[folded.register()]),
        &["key column folded.n has type d, in which different values are equal"],
    );
}

/// `a` and `A`, or `a` and `a `, are one row, and two keys for eos.
#[test]
fn a_key_whose_different_values_are_equal_is_refused() {
    let url = database(
        "folded",
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE a (k char(5) PRIMARY KEY, v char(5));
         CREATE TABLE b (k text COLLATE any_case PRIMARY KEY)",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = |name: &str| {
        let table = shop.table::<String, i64>(name);
        table.key("k", |key, _| key.clone())
    };
    let places = [
        table("a").column("v", |key, _| key.clone()).register(),
        table("b").register(),
    ];
    let text = mistakes(&shop, &places);
    assert_contains(
        &text,
        &[
            "key column a.k has type bpchar, in which different values are equal",
            "key column b.k has type text",
        ],
    );
    assert!(!text.contains("a.v"), "{text}");
}

#[test]
fn missing_grants_come_with_their_statements() {
    let url = database("grants", "CREATE TABLE t (x text PRIMARY KEY, y jsonb)");
    run(
        &url,
        "DROP ROLE IF EXISTS eos_limited; CREATE ROLE eos_limited LOGIN",
    )
    .unwrap();
    let limited = url.replace("postgres@", "eos_limited@");
    let shop = Postgres::connect(&limited).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .key("x", |k, _| k.clone())
        .column("y", |_, v| Json(*v))
        .refused(Refused::DeadLetter)
        .once_by(&shop.inbox("i"), |k, _| k.clone());
    let places = [table.register()];
    // The statements in the messages are all that is needed.
    let mut granted = Vec::new();
    for _ in 0..10 {
        let Err(error) = check(&shop, &places) else {
            assert!(granted.len() >= 6, "{granted:?}");
            return;
        };
        let grants: Vec<String> = error
            .text
            .lines()
            .filter_map(|line| Some(line.get(line.find("GRANT")?..)?.to_owned()))
            .collect();
        assert!(!grants.is_empty(), "{error}");
        for grant in grants {
            run(&url, &grant).unwrap();
            granted.push(grant);
        }
    }
    panic!("still refused after {granted:?}");
}

#[test]
fn the_schema_is_checked() {
    let url = cluster().empty_database("no_schema").unwrap();
    let shop = Postgres::connect(&url).unwrap();
    assert_contains(&mistakes(&shop, &[]), &["eos_postgres::install"]);
    let url = database("newer_schema", "UPDATE eos.meta SET version = 99");
    let shop = Postgres::connect(&url).unwrap();
    assert_contains(
        &mistakes(&shop, &[]),
        &["version 99", "use a newer eos-postgres"],
    );
    let url = database(
        "unlogged_positions",
        "ALTER TABLE eos.positions SET UNLOGGED",
    );
    let shop = Postgres::connect(&url).unwrap();
    assert_contains(
        &mistakes(&shop, &[]),
        &["ALTER TABLE eos.positions SET LOGGED"],
    );
}

#[test]
fn wrong_servers_are_named() {
    let url = database("wrong", "");
    let name = url.rsplit('/').next().unwrap().to_owned();
    run(
        &url,
        &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"),
    )
    .unwrap();
    let shop = Postgres::connect(&url).unwrap();
    assert_contains(&mistakes(&shop, &[]), &["read-only"]);
    let missing = Postgres::connect(&cluster().url("missing")).unwrap();
    let text = mistakes(&missing, &[]);
    assert_contains(&text, &["3D000", "Create the database"]);
    let unknown = url.replace("postgres@", "unknown_role@");
    let text = mistakes(&Postgres::connect(&unknown).unwrap(), &[]);
    assert_contains(&text, &["28000", "user and password"]);
}

/// The check tries for the whole time, and no longer.
#[test]
fn a_server_that_is_down_is_tried_until_the_time_has_passed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().display().to_string().replace('/', "%2F");
    let within = Duration::from_secs(1);
    for host in ["localhost:1", &socket] {
        let shop = Postgres::connect(&format!("postgres://u@{host}/shop")).unwrap();
        let start = Instant::now();
        let error = shop.check(&plan(&[]), within).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Retriable);
        assert_contains(&error.text, &["the connection to", "failed"]);
        let tried = start.elapsed();
        assert!(tried >= within && tried < 3 * within, "{host}: {tried:?}");
    }
}

#[test]
fn a_server_that_is_full_is_tried_again() {
    let cluster = Cluster::temporary(&[
        ("max_connections", "4"),
        ("superuser_reserved_connections", "0"),
    ])
    .unwrap();
    let url = cluster.database("full").unwrap();
    let runtime = Runtime::new().unwrap();
    let held: Vec<Client> = (0..3).map(|_| runtime.block_on(connect(&url))).collect();
    let shop = Postgres::connect(&url).unwrap();
    let error = shop.check(&plan(&[]), Duration::from_secs(2));
    let error = error.unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Retriable);
    assert_contains(&error.text, &["53300", "max_connections"]);
    // The sessions of the others end meanwhile.
    let end = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop((held, runtime));
    });
    check(&shop, &[]).unwrap();
    end.join().unwrap();
}

/// Opens a session. A session that just ended may still have its connection.
async fn connect(url: &str) -> Client {
    let start = Instant::now();
    loop {
        match tokio_postgres::connect(url, NoTls).await {
            Ok((client, connection)) => {
                // It ends with its client.
                tokio::spawn(async move { drop(connection.await) });
                return client;
            }
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_installation_may_be_repeated_by_many() {
    let url = cluster().empty_database("install").unwrap();
    let installers: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || eos_postgres::testing::install(&url))
        })
        .collect();
    for installer in installers {
        installer.join().unwrap().unwrap();
    }
    check(&Postgres::connect(&url).unwrap(), &[]).unwrap();
}

/// The server understands the statement, but may not lock its table in time. The check runs again.
#[test]
fn a_statement_whose_table_is_locked_is_tried_again() {
    let url = database("checks_locked", "CREATE TABLE t (n bigint)");
    let limit = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 200', current_database()); END $$";
    run(&url, limit).unwrap();
    let other = std::thread::spawn({
        let url = url.clone();
        move || run(&url, "BEGIN; LOCK TABLE t; SELECT pg_sleep(2); COMMIT")
    });
    let locked = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
         AND relation = 't'::regclass";
    while rows(&url, locked) == "0" {
        assert!(!other.is_finished());
        std::thread::sleep(Duration::from_millis(20));
    }
    let shop = Postgres::connect(&url).unwrap();
    let name = shop
        .statement::<String, i64>("s", "INSERT INTO t VALUES (1)")
        .register();
    let names = plan(&[name]);
    let error = shop.check(&names, Duration::from_millis(900)).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Retriable, "{error}");
    assert_contains(&error.text, &["55P03"]);
    shop.check(&names, Duration::from_secs(20)).unwrap();
    other.join().unwrap().unwrap();
}
