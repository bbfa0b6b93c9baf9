//! A worker has one session.

use std::time::Duration;

use eos_core::boundary::LedgerFailure;
use eos_postgres::Postgres;
use eos_postgres::testing::{run, value};

use crate::support::{Register, Worker, database, wait};

const TABLE: &str = "CREATE TABLE t (n bigint)";

/// Two databases of a server, with the same role and the same names: production and staging.
#[test]
fn a_session_in_another_database_is_left_alone() {
    let (one, two) = (database("two_a", TABLE), database("two_b", TABLE));
    let start = |url: &str| {
        let shop = Postgres::connect(url).unwrap();
        let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
        (Worker::new(&shop, &[table.register()], "w"), table)
    };
    let (mut first, table) = start(&one);
    let taken = first.take(0);
    first.begin(&taken);
    first.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    wait(|slice| first.session.flush(slice)).unwrap();
    let (mut second, _) = start(&two);
    // With the same names, this one has a higher epoch now.
    second.renew().unwrap();
    second.renew().unwrap();
    first.finish(&taken, 1).unwrap();
    assert_eq!(value(&one, "SELECT count(*) FROM t").unwrap(), "1");
}

/// The newer session ends the older one, and the older process learns why.
#[test]
fn two_processes_with_one_identity_do_not_end_each_other_in_silence() {
    let url = database("identity_twice", TABLE);
    let older = Postgres::connect(&url).unwrap();
    let mut older = Worker::new(&older, &[], "w");
    let newer = Postgres::connect(&url).unwrap();
    let mut newer = Worker::new(&newer, &[], "w");
    let error = older.renew().unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Superseded, "{error}");
    // The newer one was not disturbed.
    let taken = newer.take(0);
    newer.begin(&taken);
    newer.finish(&taken, 1).unwrap();
    // A worker that is started again after this is the newest one.
    older.renew().unwrap();
    assert!(newer.session.is_spoiled() || newer.renew().is_err());
}

#[test]
fn an_older_session_with_an_open_transaction_is_ended() {
    let url = database("older", TABLE);
    let shop = Postgres::connect(&url).unwrap();
    let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
    let (mut old, taken) = Worker::writing(&shop, &table);
    wait(|slice| old.session.flush(slice)).unwrap();
    let other = Postgres::connect(&url).unwrap();
    let mut new = Worker::new(&other, &[], "w");
    let error = old.finish(&taken, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Abortable, "{error}");
    assert!(old.session.is_spoiled());
    assert_eq!(new.take(0).offset, None);
    let names = value(
        &url,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^eos/[0-9a-f]{16}/2/s$'",
    );
    assert_eq!(names.unwrap(), "1");
}

/// A server keeps an idle session of a lost host for a while. This one belongs to a role that the new one may not end.
#[test]
fn an_idle_session_of_another_role_is_not_waited_for() {
    let url = database("other_role", TABLE);
    let of_role = |role: &str| {
        let grants = format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA eos TO {role}; \
             GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA eos TO {role}; GRANT INSERT ON t TO {role}"
        );
        run(&url, &grants).unwrap();
        Postgres::connect(&url.replace("postgres@", &format!("{role}@"))).unwrap()
    };
    let process = std::process::id();
    let shop = of_role(&format!("eos_old_{process}"));
    let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
    let mut old = Worker::new(&shop, &[table.register()], "w");
    let taken = old.take(0);
    let shop = of_role(&format!("eos_new_{process}"));
    let mut new = Worker::new(&shop, &[], "w");
    // The older session can't commit any more.
    old.begin(&taken);
    let put = old.put(&table, (0, 0), &"k".into(), Some(&1));
    let error = put.and_then(|()| old.finish(&taken, 1)).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Superseded, "{error}");
    let taken = new.take(0);
    new.begin(&taken);
    new.finish(&taken, 1).unwrap();
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    drop((old, new));
    run(
        &url,
        &format!(
            "DROP OWNED BY eos_old_{process}, eos_new_{process}; DROP ROLE eos_old_{process}, eos_new_{process}"
        ),
    )
    .unwrap();
}

/// What the transaction of another role commits is known before the new session begins.
#[test]
fn an_open_transaction_of_another_role_is_waited_for() {
    let url = database("other_role_open", TABLE);
    let role = format!("eos_open_{}", std::process::id());
    run(
        &url,
        &format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA eos TO {role}; \
                  GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA eos TO {role}; GRANT INSERT ON t TO {role}"),
    )
    .unwrap();
    // A superuser's session, which the role may not end.
    let shop = Postgres::connect(&url).unwrap();
    let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
    let (mut old, taken) = Worker::writing(&shop, &table);
    wait(|slice| old.session.flush(slice)).unwrap();
    let shop = Postgres::connect(&url.replace("postgres@", &format!("{role}@"))).unwrap();
    let begins = std::thread::spawn(move || drop(Worker::new(&shop, &[], "w")));
    while value(&url, "SELECT max(epoch) FROM eos.sessions").unwrap() != "2" {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(!begins.is_finished(), "it does not wait");
    let error = old.finish(&taken, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Superseded, "{error}");
    drop(old);
    begins.join().unwrap();
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    run(&url, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}
