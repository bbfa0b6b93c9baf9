//! Refused records as rows of `eos.dead_letters`.

use serde_json::{Map, Value};

use super::chunk::RowRef;
use super::places::Prepared;
use crate::place::{ColumnDef, Shape};
use crate::row::Values;
use crate::value::Kind;

/// Returns the rows of a record as JSON: an array of objects with `place`, `deleted` and `columns`.
///
/// It is stored as bytes. A `jsonb` would refuse `\u0000`, and the letter with it.
pub(super) fn rows(places: &[Prepared], record: &[RowRef<'_>]) -> Vec<u8> {
    let rows: Vec<Value> = record
        .iter()
        .filter_map(|row| {
            let place = places.get(row.place)?;
            let mut object = Map::new();
            object.insert("place".into(), place.definition.name.clone().into());
            object.insert("deleted".into(), row.row.is_none().into());
            object.insert("columns".into(), columns(place, row));
            Some(Value::Object(object))
        })
        .collect();
    Value::Array(rows).to_string().into_bytes()
}

fn columns(place: &Prepared, row: &RowRef<'_>) -> Value {
    let mut columns = Map::new();
    // A row that cannot be taken apart is shown as far as possible.
    let key = row.key.and_then(|key| {
        let mut values = crate::row::values(key).ok()?;
        if place.definition.inbox.is_some() {
            let id = values.next()?.ok()?;
            columns.insert("message id".into(), shown(Kind::Bytes, id));
        }
        Some(values.rest())
    });
    let rest = row
        .row
        .and_then(|row| place.values(row).ok())
        .unwrap_or_default();
    match &place.definition.shape {
        Shape::Table(shape) => {
            let values = Values::bare(key.unwrap_or_default());
            let keys = values.map(|value| value.ok().flatten());
            insert(&mut columns, &shape.keys, keys);
            insert(&mut columns, &shape.columns, rest.into_iter());
        }
        Shape::Apply(_) => {
            for (name, json) in ["key", "value"].into_iter().zip(rest) {
                let json = json.and_then(|json| serde_json::from_slice(json).ok());
                columns.insert(name.into(), json.unwrap_or_default());
            }
        }
        Shape::Letters => {}
        Shape::Statement(shape) => {
            for (index, (kind, value)) in shape.params.iter().zip(rest).enumerate() {
                columns.insert(format!("${}", index + 1), shown(*kind, value));
            }
        }
    }
    Value::Object(columns)
}

fn insert<'a>(
    columns: &mut Map<String, Value>,
    defs: &[ColumnDef],
    values: impl Iterator<Item = Option<&'a [u8]>>,
) {
    for (def, value) in defs.iter().zip(values) {
        columns.insert(def.name.clone(), shown(def.kind, value));
    }
}

fn shown(kind: Kind, value: Option<&[u8]>) -> Value {
    let Some(value) = value else {
        return Value::Null;
    };
    let hex = || -> Value {
        let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
        let mut text = String::with_capacity(2 + 2 * value.len());
        text.push_str("\\x");
        text.extend(
            value
                .iter()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]),
        );
        text.into()
    };
    let text = |value: &[u8]| std::str::from_utf8(value).map_or_else(|_| hex(), Value::from);
    match (kind, value) {
        (Kind::I16, [a, b]) => i16::from_be_bytes([*a, *b]).into(),
        (Kind::I32, [a, b, c, d]) => i32::from_be_bytes([*a, *b, *c, *d]).into(),
        (Kind::I64, _) => value
            .try_into()
            .map_or_else(|_| hex(), |bytes| i64::from_be_bytes(bytes).into()),
        (Kind::F64, _) => value
            .try_into()
            .map_or_else(|_| hex(), |bytes| f64::from_be_bytes(bytes).into()),
        (Kind::Bool, [byte]) => (*byte != 0).into(),
        (Kind::Text | Kind::Numeric | Kind::Json | Kind::Any, _) => text(value),
        _ => hex(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_json() {
        assert_eq!(shown(Kind::I64, Some(&7_i64.to_be_bytes())), Value::from(7));
        assert_eq!(
            shown(Kind::Text, Some(b"a\0b")).to_string(),
            "\"a\\u0000b\""
        );
        assert_eq!(shown(Kind::Bytes, Some(&[1, 255])), Value::from("\\x01ff"));
        assert_eq!(shown(Kind::Text, None), Value::Null);
    }
}
