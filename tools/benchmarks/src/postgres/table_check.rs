//! Compares the tables with the input.

use anyhow::{Context, Result, ensure};
use eos_postgres::tokio_postgres::Row;

use super::database::Database;
use crate::records::{Input, key_number, number_of_key};
use crate::work::{View, Work};

/// Reads the whole table and fails if it is wrong. Returns the number of rows.
pub(crate) fn ensure_right(
    database: &Database,
    work: Work,
    records: u64,
    keys: u64,
) -> Result<u64> {
    match work {
        Work::Statements => totals(database, records, keys),
        Work::Upsert => last_views(database, records, keys),
        _ => all_views(database, records, keys),
    }
}

const VIEWS: &str = "SELECT username, page, ms, seq, pad FROM page_views";

/// Requires one row for each record. Returns the number of rows.
fn all_views(database: &Database, records: u64, keys: u64) -> Result<u64> {
    let mut seen = vec![false; usize::try_from(records)?];
    let (mut input, mut count) = (Input::of(Work::Insert, keys), 0);
    database.each(VIEWS, |row| {
        let seq = ensure_is_record(row, &mut input)?;
        let seen = usize::try_from(seq).ok().and_then(|seq| seen.get_mut(seq));
        let seen =
            seen.with_context(|| format!("a row has number {seq}, which is not in the input"))?;
        ensure!(!*seen, "record {seq} has two rows");
        *seen = true;
        count += 1;
        Ok(())
    })?;
    ensure!(
        count == records,
        "the table has {count} rows for {records} records"
    );
    Ok(count)
}

/// Requires that each key has the row of its last record. Returns the number of rows.
fn last_views(database: &Database, records: u64, keys: u64) -> Result<u64> {
    let mut last = vec![None; usize::try_from(keys)?];
    for seq in 0..records {
        *at(&mut last, key_number(seq, keys))? = Some(seq);
    }
    let expected = last.iter().flatten().count() as u64;
    let (mut input, mut count) = (Input::of(Work::Upsert, keys), 0);
    database.each(VIEWS, |row| {
        let seq = ensure_is_record(row, &mut input)?;
        // The key is unique in the table.
        let last = *at(&mut last, key_number(seq, keys))?;
        ensure!(
            last == Some(seq),
            "a row has record {seq}, but the last record of its key is {last:?}"
        );
        count += 1;
        Ok(())
    })?;
    ensure!(
        count == expected,
        "the table has {count} rows for {expected} keys"
    );
    Ok(count)
}

/// Requires that each key has the number of its records and the sum of their times. Returns the number of rows.
fn totals(database: &Database, records: u64, keys: u64) -> Result<u64> {
    let mut expected = vec![(0, 0); usize::try_from(keys)?];
    let mut input = Input::of(Work::Statements, keys);
    for seq in 0..records {
        input.set(seq);
        let view: View = serde_json::from_slice(&input.value)?;
        let (views, ms) = at(&mut expected, key_number(seq, keys))?;
        *views += 1;
        *ms += i64::from(view.ms);
    }
    let mut count = 0;
    database.each("SELECT username, views, ms FROM totals", |row| {
        let (user, views, ms): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let key = number_of_key(user.as_bytes(), keys);
        let key = key.with_context(|| format!("a row has the unknown user {user}"))?;
        let expected = *at(&mut expected, key)?;
        ensure!(
            (views, ms) == expected,
            "{user}: {views} views of {ms} ms instead of {expected:?}"
        );
        count += 1;
        Ok(())
    })?;
    ensure!(count == keys, "the table has {count} rows for {keys} users");
    Ok(count)
}

/// Compares a row with its record, and returns the number of the record.
fn ensure_is_record(row: &Row, input: &mut Input) -> Result<u64> {
    let (user, page, ms): (&str, &str, i64) = (row.get(0), row.get(1), row.get(2));
    let (seq, pad): (i64, &str) = (row.get(3), row.get(4));
    let seq = u64::try_from(seq)?;
    input.set(seq);
    let found =
        format!(r#"{{"user":"{user}","page":"{page}","ms":{ms},"seq":{seq},"pad":"{pad}"}}"#);
    ensure!(
        found.as_bytes() == input.value,
        "the row {found} is not record {seq}: {}",
        String::from_utf8_lossy(&input.value)
    );
    Ok(seq)
}

fn at<T>(all: &mut [T], number: u64) -> Result<&mut T> {
    let place = usize::try_from(number)
        .ok()
        .and_then(|number| all.get_mut(number));
    place.with_context(|| format!("key number {number} is out of range"))
}
