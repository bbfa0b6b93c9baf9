//! Closures with the transaction of their record.

use eos_core::boundary::{Ledger as _, LedgerFailure};
use eos_core::codec::Plain;
use eos_core::{App, Failure, Record, Timestamp, Topic};
use eos_postgres::testing::run;
use eos_postgres::{Apply, Postgres, PostgresStream, Refused, Tx};
use eos_testkit::TestDriver;

use crate::support::{Register, Worker, database, plan, rows};

const TABLES: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint CHECK (units >= 0));
    INSERT INTO stock VALUES ('a', 1000);
    CREATE TABLE bookings (sku text, units bigint, sent bigint, stock bigint);
    CREATE TABLE backorders (sku text, units bigint)";

fn orders() -> Topic<String, i64, Plain, Plain> {
    Topic::plain("orders")
}

/// Takes units from the stock, or orders them.
async fn book(tx: &mut Tx, order: Record<String, i64>) -> Result<(), Failure> {
    let (sku, units) = (&order.key, &order.value);
    let taken = tx
        .query_opt(
            "UPDATE stock SET units = units - $2 WHERE sku = $1 AND units >= $2 RETURNING units",
            &[sku, units],
        )
        .await?;
    let Some(taken) = taken else {
        let sql = "INSERT INTO backorders VALUES ($1, $2)";
        tx.execute(sql, &[sku, units]).await?;
        return Ok(());
    };
    let left: i64 = taken.try_get(0)?;
    let sent = order.timestamp.map(|at| at.0);
    let sql = "INSERT INTO bookings VALUES ($1, $2, $3, $4)";
    tx.execute(sql, &[sku, units, &sent, &left]).await?;
    Ok(())
}

fn app(url: &str) -> App {
    let shop = Postgres::connect(url).unwrap();
    let mut app = App::new("shop-v1");
    app.ledger(&shop);
    app.source(&orders())
        .apply(&shop, "book", async |tx, order| book(tx, order).await);
    app
}

/// Each record's statements have their effect once, and each closure sees the effects of the records before it.
#[test]
fn a_crash_doubles_no_effect_of_a_closure() {
    let url = database("closures", TABLES);
    let mut driver = TestDriver::new(app(&url));
    for (n, units) in [600, 500, 300, 200].into_iter().enumerate() {
        driver.crash_at_effect(n as u64 % 4 + 1);
        driver.pipe_at(&orders(), "a", units, Timestamp(1_700_000_000_000 + units));
    }
    driver.crash();
    driver.pipe_at(&orders(), "a", 100_i64, Timestamp(1_700_000_000_100));
    assert_eq!(
        rows(&url, "SELECT * FROM bookings ORDER BY stock DESC"),
        "a|600|1700000000600|400 a|300|1700000000300|100 a|100|1700000000100|0"
    );
    let backorders = "SELECT * FROM backorders ORDER BY units";
    assert_eq!(rows(&url, backorders), "a|200 a|500");
}

/// A worker whose places are `t`, a table without a key, and a closure.
fn write(
    url: &str,
    closure: impl AsyncFn(&mut Tx, Record<String, Option<i64>>) -> Result<(), Failure>
    + Send
    + Sync
    + 'static,
    policy: Refused,
    records: &[(&str, i64)],
) -> Result<(), eos_core::boundary::LedgerError> {
    let shop = Postgres::connect(url).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .column("n", |_, n| *n)
        .refused(policy);
    let closure = shop.apply("check", closure).refused(policy);
    let mut worker = Worker::new(&shop, &[table.register(), closure.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, (name, n)) in records.iter().enumerate() {
        let at = (0, i64::try_from(at).unwrap());
        worker.put(&table, at, &(*name).to_owned(), Some(n))?;
        worker.put(&closure, at, &(*name).to_owned(), Some(n))?;
    }
    worker.finish(&taken, 9).map(drop)
}

const T: &str = "CREATE TABLE t (n bigint); CREATE TABLE u (n bigint CHECK (n < 100))";

/// The rows of all places of a record stay together. An ignored error is an error.
#[test]
fn a_failed_statement_refuses_its_record() {
    let url = database("closures_refused", T);
    let insert = async |tx: &mut Tx, record: Record<String, Option<i64>>| {
        let done = tx
            .execute("INSERT INTO u VALUES ($1)", &[&record.value])
            .await;
        match record.key.as_str() {
            "ignores" => Ok(()),
            _ => done.map(drop),
        }
    };
    let records = [("a", 1), ("b", 100), ("ignores", 101), ("c", 2)];
    write(&url, insert, Refused::DeadLetter, &records).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "1 2");
    assert_eq!(rows(&url, "SELECT n FROM u ORDER BY n"), "1 2");
    let letters = "SELECT \"offset\", place, sqlstate FROM eos.dead_letters ORDER BY 1";
    assert_eq!(
        rows(&url, letters),
        "1|closure check|23514 2|closure check|23514"
    );
    let shown = "SELECT convert_from(rows, 'UTF8') FROM eos.dead_letters WHERE \"offset\" = 1";
    let shown = rows(&url, shown);
    let closure = r#"{"columns":{"key":"b","value":100},"deleted":false,"place":"closure check"}"#;
    assert!(shown.contains(closure), "{shown}");
}

#[test]
fn an_error_of_the_closure_refuses_its_record() {
    let url = database("closures_error", T);
    let judge = async |_: &mut Tx, record: Record<String, Option<i64>>| match record.value {
        Some(7) => Err("seven is not sold".into()),
        _ => Ok(()),
    };
    let records = [("a", 6), ("b", 7), ("c", 8)];
    write(&url, judge, Refused::Skip, &records).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "6 8");
    let error = write(&url, judge, Refused::Fail, &records).unwrap_err();
    assert!(error.blames_a_record);
    let expected = "closure check: seven is not sold. `.refused(..)` of its table, statement or closure can skip";
    assert!(error.text.contains(expected), "{error}");
}

/// A query sees the rows of its own record and of those before it, in all places without an inbox.
#[test]
fn a_closure_sees_the_rows_before_it() {
    let url = database("closures_order", T);
    let count = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("INSERT INTO u SELECT count(*) FROM t", &[])
            .await?;
        Ok(())
    };
    write(&url, count, Refused::Fail, &[("a", 5), ("b", 5), ("c", 5)]).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM u ORDER BY n"), "1 2 3");
}

#[test]
fn a_closure_cannot_end_its_transaction() {
    let url = database("closures_commit", T);
    let commit = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("INSERT INTO u VALUES (1)", &[]).await?;
        let _ = tx.execute("COMMIT", &[]).await;
        Ok(())
    };
    let error = write(&url, commit, Refused::Skip, &[("a", 1)]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal);
    assert!(error.text.contains("closure check runs COMMIT"), "{error}");
    assert_eq!(rows(&url, "SELECT count(*) FROM u"), "0");
}

/// C2 of the design. eos does not check the tables that a trigger writes, so the first transaction fails, and the statement
/// is checked alone before the next one.
#[test]
fn a_closure_cannot_write_a_table_without_a_log() {
    let tables = "CREATE UNLOGGED TABLE audit (n bigint);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN INSERT INTO audit VALUES (NEW.n); RETURN NEW; END $$;
        CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()";
    let url = database("closures_unlogged", &format!("{T}; {tables}"));
    let insert = async |tx: &mut Tx, record: Record<String, Option<i64>>| {
        let sql = match record.key.as_str() {
            "bad" => "INSERT INTO audit VALUES (7)",
            _ => "INSERT INTO u VALUES (1)",
        };
        tx.execute(sql, &[]).await?;
        Ok(())
    };
    let shop = Postgres::connect(&url).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .column("n", |_, n| *n)
        .refused(Refused::Skip);
    let closure = shop.apply("check", insert).refused(Refused::Skip);
    let mut worker = Worker::new(&shop, &[table.register(), closure.register()], "w");
    let mut write = |keys: &[&str]| {
        let taken = worker.take(0);
        worker.begin(&taken);
        for (at, key) in (0..).zip(keys) {
            let key = (*key).to_owned();
            worker.put(&table, (0, at), &key, Some(&1))?;
            worker.put(&closure, (0, at), &key, Some(&1))?;
        }
        worker.finish(&taken, 9).map(drop)
    };
    // Its trigger has written the table before the statement is prepared.
    let error = write(&["a"]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Abortable, "{error}");
    write(&["a"]).unwrap();
    let audited = "SELECT count(*) FROM audit";
    assert_eq!(
        (rows(&url, "SELECT count(*) FROM u"), rows(&url, audited)),
        ("1".into(), "1".into())
    );
    let expected = "closure check writes table audit, which is UNLOGGED";
    for failure in [LedgerFailure::Abortable, LedgerFailure::Fatal] {
        let error = write(&["a", "bad"]).unwrap_err();
        assert_eq!(error.failure, failure, "{error}");
        assert!(error.text.contains(expected), "{error}");
    }
    assert_eq!(rows(&url, audited), "1");
}

/// A statement does not write the temporary tables of other sessions, and an INSERT writes no child of its table.
#[test]
fn children_that_a_statement_does_not_write_are_no_mistake() {
    let url = database(
        "closures_children",
        &format!("{T}; CREATE UNLOGGED TABLE c () INHERITS (u)"),
    );
    let statement = |sql: &str| {
        let shop = Postgres::connect(&url).unwrap();
        let name = shop.statement::<String, i64>("s", sql).register();
        shop.check(&plan(&[name]), std::time::Duration::from_secs(10))
    };
    let insert = "INSERT INTO u VALUES (1)";
    statement(insert).unwrap();
    let error = statement("UPDATE u SET n = 1").unwrap_err();
    assert!(
        error.text.contains("writes table c, which is UNLOGGED"),
        "{error}"
    );
    run(&url, "DROP TABLE c").unwrap();
    let other = std::thread::spawn({
        let url = url.clone();
        move || {
            run(
                &url,
                "BEGIN; CREATE TEMP TABLE other () INHERITS (u); COMMIT; SELECT pg_sleep(3)",
            )
        }
    });
    while rows(
        &url,
        "SELECT count(*) FROM pg_class WHERE relname = 'other'",
    ) == "0"
    {
        assert!(!other.is_finished());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    statement("UPDATE u SET n = 1").unwrap();
    assert!(!other.is_finished());
    other.join().unwrap().unwrap();
}

/// The move of positions finds a transaction that is not the one of its begin.
#[test]
fn a_closure_that_hides_a_commit_is_found() {
    let url = database("closures_hidden", T);
    let hide = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("SELECT set_config('eos.transaction', '', true)", &[])
            .await?;
        Ok(())
    };
    let error = write(&url, hide, Refused::Skip, &[("a", 1)]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal);
    assert!(error.text.contains("has ended the transaction"), "{error}");
}

/// H8 of the design. Without a first word that shows it, the move of positions finds the change.
#[test]
fn a_closure_that_changes_the_session_is_found() {
    // Other runs may use the same server.
    let role = format!("eos_other_{}", std::process::id());
    let url = database(
        "closures_settings",
        &format!("{T}; CREATE ROLE {role} SUPERUSER"),
    );
    for sql in [
        "SELECT set_config('search_path', 'elsewhere, public', false)",
        "SELECT set_config('search_path', 'elsewhere, public', true)",
        &format!("SELECT set_config('role', '{role}', false)"),
        &format!("DO $$ BEGIN SET SESSION AUTHORIZATION {role}; END $$"),
    ] {
        let text = sql.to_owned();
        let change = async move |tx: &mut Tx, _: Record<String, Option<i64>>| {
            tx.execute(&text, &[]).await?;
            Ok(())
        };
        let error = write(&url, change, Refused::Skip, &[("a", 1)]).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Fatal, "{sql}: {error}");
        let expected = "has changed the role or the search_path";
        assert!(error.text.contains(expected), "{sql}: {error}");
    }
    assert_eq!(rows(&url, "SELECT count(*) FROM t"), "0");
    run(&url, &format!("DROP ROLE {role}")).unwrap();
    // What a function sets for itself is over when it returns.
    let function = "CREATE FUNCTION f() RETURNS bigint LANGUAGE sql SET search_path = '' AS 'SELECT 7::bigint'";
    run(&url, function).unwrap();
    let call = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("INSERT INTO u SELECT f()", &[]).await?;
        Ok(())
    };
    write(&url, call, Refused::Skip, &[("a", 1)]).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM u"), "7");
}

/// The statements of tables qualify type names, so they find `mood` after a closure changes the `search_path`. The error names
/// the changed `search_path`, not a changed column.
#[test]
fn a_changed_search_path_is_not_reported_as_a_changed_column() {
    let url = database(
        "closures_names",
        "CREATE TYPE mood AS ENUM ('happy'); CREATE TABLE t (m mood); CREATE TABLE u (n bigint CHECK (n < 100))",
    );
    let shop = Postgres::connect(&url).unwrap();
    let table = shop
        .table::<String, i64>("t")
        .column("m", |mood: &String, _| mood.clone())
        .refused(Refused::Skip);
    let change = async |tx: &mut Tx, record: Record<String, Option<i64>>| {
        let sql = "INSERT INTO public.u VALUES ($1)";
        tx.execute(sql, &[&record.value]).await?;
        tx.execute("SELECT set_config('search_path', '', true)", &[])
            .await?;
        Ok(())
    };
    let closure = shop.apply("check", change).refused(Refused::Skip);
    let mut worker = Worker::new(&shop, &[table.register(), closure.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, n) in [(0, 1), (1, 100)] {
        let mood = "happy".to_owned();
        worker.put(&table, (0, at), &mood, Some(&n)).unwrap();
        worker.put(&closure, (0, at), &mood, Some(&n)).unwrap();
    }
    let error = worker.finish(&taken, 2).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    let expected = "has changed the role or the search_path";
    assert!(error.text.contains(expected), "{error}");
}

#[test]
fn a_panic_of_a_closure_refuses_its_record() {
    let url = database("closures_panic", T);
    let judge = async |_: &mut Tx, record: Record<String, Option<i64>>| {
        assert!(record.value != Some(7), "seven");
        Ok(())
    };
    let records = [("a", 6), ("b", 7), ("c", 8)];
    write(&url, judge, Refused::Skip, &records).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t ORDER BY n"), "6 8");
    let error = write(&url, judge, Refused::Fail, &records).unwrap_err();
    assert!(error.blames_a_record, "{error}");
}

/// A mistake of the program must not skip all records.
#[test]
fn a_wrong_parameter_stops_the_worker() {
    let url = database("closures_types", T);
    let of_type = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("INSERT INTO u VALUES ($1)", &[&"text"]).await?;
        Ok(())
    };
    let error = write(&url, of_type, Refused::Skip, &[("a", 1)]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    let of_number = async |tx: &mut Tx, _: Record<String, Option<i64>>| {
        tx.execute("INSERT INTO u VALUES ($1)", &[]).await?;
        Ok(())
    };
    let error = write(&url, of_number, Refused::Skip, &[("a", 1)]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    assert!(
        error
            .text
            .contains("has 1 parameters, and the closure passes 0"),
        "{error}"
    );
}

/// A statement that was prepared before a change of its table is prepared again by a new session.
#[test]
fn a_change_of_a_table_aborts_one_transaction() {
    let url = database("closures_changed", T);
    let shop = Postgres::connect(&url).unwrap();
    let read: Apply<String, Option<i64>> =
        shop.apply("read", async |tx, _: Record<String, Option<i64>>| {
            tx.query("SELECT * FROM u", &[]).await?;
            Ok(())
        });
    let mut worker = Worker::new(&shop, &[read.register()], "w");
    let mut taken = worker.take(0);
    let turn = |worker: &mut Worker, taken: &eos_core::boundary::Taken, at: i64| {
        worker.begin(taken);
        worker
            .put(&read, (0, at), &"k".to_owned(), Some(&1))
            .unwrap();
        worker.finish(taken, at + 1)
    };
    taken = turn(&mut worker, &taken, 0).unwrap();
    run(&url, "ALTER TABLE u ADD COLUMN more text").unwrap();
    let error = turn(&mut worker, &taken, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Abortable, "{error}");
    assert!(worker.session.is_spoiled());
    worker.renew().unwrap();
    let taken = worker.take(0);
    turn(&mut worker, &taken, 1).unwrap();
}

/// The error says so, and the transaction is aborted in time.
#[test]
fn a_closure_that_hangs_is_aborted() {
    let url = database("closures_hang", T);
    let hang = async |_: &mut Tx, _: Record<String, Option<i64>>| std::future::pending().await;
    let error = write(&url, hang, Refused::Skip, &[("a", 1)]).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Abortable);
    assert!(
        error.text.contains("closure check has not ended within 5s"),
        "{error}"
    );
}

/// A lock of another session is the cause of an abort that does not count. The closure has less time than a transaction.
#[test]
fn a_closure_that_waits_for_a_lock_is_not_one_that_hangs() {
    let url = database("closures_locked", T);
    let other = {
        let url = url.clone();
        std::thread::spawn(move || run(&url, "BEGIN; LOCK TABLE u; SELECT pg_sleep(7); COMMIT"))
    };
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'u'::regclass AND granted";
    let since = std::time::Instant::now();
    while rows(&url, locks) != "1" {
        assert!(since.elapsed().as_secs() < 5, "the table is not locked");
    }
    let shop = Postgres::connect(&url).unwrap();
    let insert: Apply<String, Option<i64>> =
        shop.apply("insert", async |tx, record: Record<String, Option<i64>>| {
            tx.execute("INSERT INTO u VALUES ($1)", &[&record.value])
                .await?;
            Ok(())
        });
    let mut plan = plan(&[insert.register()]);
    plan.transaction_timeout = std::time::Duration::from_secs(60);
    let mut worker = Worker::of(&shop, plan, "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker
        .put(&insert, (0, 0), &"k".to_owned(), Some(&1))
        .unwrap();
    let error = worker.finish(&taken, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Contended, "{error}");
    other.join().unwrap().unwrap();
}

/// The text of serde would show the value.
#[test]
fn a_value_that_cannot_be_read_again_is_in_no_message() {
    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    struct Secret {
        #[serde(rename(serialize = "a", deserialize = "b"))]
        text: String,
        #[serde(rename(serialize = "b", deserialize = "a"))]
        number: u64,
    }
    let url = database("closures_decode", T);
    let shop = Postgres::connect(&url).unwrap();
    let place: Apply<String, Option<Secret>> = shop.apply(
        "decode",
        async |_, _: Record<String, Option<Secret>>| Ok(()),
    );
    let mut worker = Worker::new(&shop, &[place.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    let secret = Secret {
        text: "secret".to_owned(),
        number: 4711,
    };
    worker
        .put(&place, (0, 0), &"k".to_owned(), Some(&secret))
        .unwrap();
    let error = worker.finish(&taken, 1).unwrap_err();
    assert!(error.text.contains("the value cannot be read"), "{error}");
    assert!(
        !error.text.contains("secret") && !error.text.contains("4711"),
        "{error}"
    );
}

#[test]
fn a_value_in_an_error_of_the_server_is_in_no_message() {
    let url = database("closures_quoted", T);
    for (sql, value, code) in [
        ("SELECT $1::text::int", "99999999999", "22003"),
        ("SELECT $1::text::int", "sec\"ret", "22P02"),
        ("SELECT secret secret secret", "", "42601"),
    ] {
        let read = async move |tx: &mut Tx, _: Record<String, Option<i64>>| {
            let params: &[&(dyn eos_postgres::tokio_postgres::types::ToSql + Sync)] = &[&value];
            tx.query(sql, &params[usize::from(value.is_empty())..])
                .await?;
            Ok(())
        };
        let error = write(&url, read, Refused::Fail, &[("a", 1)]).unwrap_err();
        assert!(error.text.contains(code), "{error}");
        for value in ["99999", "ret", "secret"] {
            assert!(!error.text.contains(value), "{error}");
        }
    }
}

#[test]
fn a_repeated_message_runs_no_closure() {
    let url = database("closures_inbox", T);
    let shop = Postgres::connect(&url).unwrap();
    let insert: Apply<String, Option<i64>> = shop
        .apply("insert", async |tx, record: Record<String, Option<i64>>| {
            tx.execute("INSERT INTO u VALUES ($1)", &[&record.value])
                .await?;
            Ok(())
        })
        .once_by(&shop.inbox("x"), |id, _| id.clone());
    let mut worker = Worker::new(&shop, &[insert.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    for (at, (id, n)) in [("m1", 1), ("m2", 2), ("m1", 3)].into_iter().enumerate() {
        let at = (0, i64::try_from(at).unwrap());
        worker.put(&insert, at, &id.to_owned(), Some(&n)).unwrap();
    }
    worker.finish(&taken, 3).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM u ORDER BY n"), "1 2");
}

/// Values keep all their digits on their way to the session.
#[test]
fn a_number_of_a_record_is_exact() {
    let url = database("closures_exact", "CREATE TABLE f (n double precision)");
    let shop = Postgres::connect(&url).unwrap();
    let insert: Apply<String, Option<f64>> =
        shop.apply("f", async |tx, record: Record<String, Option<f64>>| {
            tx.execute("INSERT INTO f VALUES ($1)", &[&record.value])
                .await?;
            Ok(())
        });
    let mut worker = Worker::new(&shop, &[insert.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    let numbers = [
        0.1 + 0.2,
        5.0e-324,
        1.797_693_134_862_315_7e308,
        8.98e307 / 3.0,
    ];
    for (at, n) in numbers.iter().enumerate() {
        let at = (0, i64::try_from(at).unwrap());
        worker.put(&insert, at, &"k".to_owned(), Some(n)).unwrap();
    }
    worker.finish(&taken, 4).unwrap();
    let found = run(&url, "SELECT n FROM f ORDER BY ctid").unwrap();
    let found: Vec<f64> = found
        .iter()
        .map(|row| row[0].as_deref().unwrap().parse().unwrap())
        .collect();
    assert_eq!(found, numbers);
}
