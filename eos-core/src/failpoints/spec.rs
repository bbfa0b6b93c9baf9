//! The text form of faults and defences.

use std::fmt;

use super::point::{Defence, Point};

const ACTIONS: &str = "the action is crash, freeze, stall, error or hang";

/// The action of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Crash,
    Freeze,
    Stall,
    Error,
    Hang,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "crash",
            Self::Freeze => "freeze",
            Self::Stall => "stall",
            Self::Error => "error",
            Self::Hang => "hang",
        })
    }
}

/// The trigger of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// The n-th time that the point is passed, from 1.
    Hit(u64),
    /// The first time that the point is passed after this number of records was taken.
    Record(u64),
}

/// An armed fault.
#[derive(Clone, Copy)]
pub(super) struct Armed {
    pub(super) point: Point,
    pub(super) act: Act,
    pub(super) when: When,
}

/// A fault or a defence that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?}: {reason}")]
pub struct Unreadable {
    /// The part that can't be read.
    pub part: String,
    /// The reason, and the alternatives.
    pub reason: String,
}

/// Reads `point=action@hit:n;…`.
pub(super) fn points(text: &str) -> Result<Vec<Armed>, Unreadable> {
    parts(text, ';').map(armed).collect()
}

/// Reads `name,name,…`.
pub(super) fn defences(text: &str) -> Result<Vec<Defence>, Unreadable> {
    let all = parts(text, ',').map(|name| {
        let found = Defence::ALL.into_iter().find(|d| d.name() == name);
        found.ok_or_else(|| {
            let names = Defence::ALL.map(Defence::name).join(", ");
            bad(name, format!("unknown defence; the defences are {names}"))
        })
    });
    all.collect()
}

fn parts(text: &str, between: char) -> impl Iterator<Item = &str> {
    text.split(between)
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn armed(part: &str) -> Result<Armed, Unreadable> {
    let (name, rest) = part.split_once('=').ok_or_else(|| {
        bad(
            part,
            "expected point=action, such as pre_commit=crash@hit:3",
        )
    })?;
    let (act, when) = rest.split_once('@').unwrap_or((rest, "hit:1"));
    let point = Point::ALL.into_iter().find(|p| p.name() == name);
    let point = point.ok_or_else(|| {
        let names = Point::ALL.map(Point::name).join(", ");
        bad(
            part,
            format!("unknown point {name:?}; the points are {names}"),
        )
    })?;
    let act = match act {
        "crash" => Act::Crash,
        "freeze" => Act::Freeze,
        "stall" => Act::Stall,
        "error" => Act::Error,
        "hang" => Act::Hang,
        _ => return Err(bad(part, ACTIONS)),
    };
    let number = |text: &str| text.parse().ok().filter(|&n| n > 0);
    let when = match when.split_once(':') {
        Some(("hit", n)) => number(n).map(When::Hit),
        Some(("record", n)) => number(n).map(When::Record),
        _ => None,
    };
    let when = when.ok_or_else(|| {
        bad(
            part,
            "the trigger is hit:n or record:n, with n of at least 1",
        )
    })?;
    Ok(Armed { point, act, when })
}

fn bad(part: &str, reason: impl Into<String>) -> Unreadable {
    Unreadable {
        part: part.to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_can_be_armed_with_every_action() {
        for point in Point::ALL {
            for act in [Act::Crash, Act::Freeze, Act::Stall, Act::Error, Act::Hang] {
                let read = points(&format!("{}={act}@record:7", point.name())).unwrap();
                assert!(read[0].point == point);
                assert_eq!((read[0].act, read[0].when), (act, When::Record(7)));
            }
        }
        let two = points("poll=error; pre_abort=crash@hit:2;").unwrap();
        assert_eq!((two[0].when, two[1].when), (When::Hit(1), When::Hit(2)));
    }

    #[test]
    fn every_defence_can_be_taken_away_by_its_name_and_is_in_the_table() {
        let table = include_str!("mod.rs");
        for defence in Defence::ALL {
            let name = defence.name();
            let read = defences(name).unwrap();
            assert!(matches!(read[..], [one] if one == defence), "{name}");
            assert_eq!(
                table.matches(&format!("//! | `{name}` |")).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn unreadable_parts_are_named_with_the_fix() {
        for (text, says) in [
            ("pre_commit", "point=action"),
            ("precommit=crash", "pre_commit"),
            ("poll=explode", ACTIONS),
            ("poll=crash@hit:0", "at least 1"),
            ("poll=crash@record", "record:n"),
        ] {
            let error = points(text).err().unwrap().to_string();
            assert!(error.contains(text) && error.contains(says), "{error}");
        }
        assert_eq!(defences("").unwrap().len(), 0);
        let error = defences("quarantine,luck").err().unwrap().to_string();
        assert!(
            error.contains("\"luck\"") && error.contains("rewind"),
            "{error}"
        );
    }
}
