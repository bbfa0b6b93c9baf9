//! Keys of ordered stores with planted bugs.

use eos_core::codec::{CodecError, OrderedKey, PrefixOf};
use eos_testkit::conformance::codecs::{Form, Violation, check_ordered_keys, check_prefixes};

use super::planted::{found, refuse};

/// The bugs that can be planted in a [`Name`].
const NOTHING: u8 = 0;
const NO_END: u8 = 1;
const ZERO_WITHIN: u8 = 2;
const HIGH_END: u8 = 3;
const END_LEFT: u8 = 4;
const TAKES_ALL: u8 = 5;
const TRUSTS_LAST: u8 = 6;
const TRUSTS_FIRST: u8 = 7;
const CLEARS_LAST: u8 = 8;
const CLEARS_FIRST: u8 = 9;
const LENGTH_FIRST: u8 = 10;
const FORGETS: u8 = 11;
const PREFIX_ENDS: u8 = 12;
const PREFIX_CLEARS: u8 = 13;
const PREFIX_PANICS: u8 = 14;

/// Bytes without zeros. A zero marks their end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name<const BUG: u8>(Vec<u8>);

impl<const BUG: u8> OrderedKey for Name<BUG> {
    fn write_last(&self, into: &mut Vec<u8>) {
        match BUG {
            CLEARS_LAST => into.clear(),
            LENGTH_FIRST => into.push(self.0.len() as u8),
            _ => {}
        }
        let kept = if BUG == FORGETS {
            self.0.len().min(2)
        } else {
            self.0.len()
        };
        into.extend_from_slice(&self.0[..kept]);
    }

    fn write_first(&self, into: &mut Vec<u8>) {
        if BUG == CLEARS_FIRST {
            into.clear();
        }
        into.extend_from_slice(&self.0);
        match BUG {
            NO_END => {}
            HIGH_END => into.push(0xff),
            _ => into.push(0),
        }
    }

    fn read_last(bytes: &[u8]) -> Result<Self, CodecError> {
        match BUG {
            TRUSTS_LAST => assert!(!bytes.contains(&0), "a zero"),
            LENGTH_FIRST => {
                return match bytes {
                    [length, name @ ..] if usize::from(*length) == name.len() => {
                        Ok(Self(name.to_vec()))
                    }
                    _ => refuse(),
                };
            }
            _ if bytes.contains(&0) && BUG != ZERO_WITHIN => return refuse(),
            _ => {}
        }
        Ok(Self(bytes.to_vec()))
    }

    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let end = if BUG == HIGH_END { 0xff } else { 0 };
        let length = bytes.iter().position(|byte| *byte == end);
        let length = match (length, BUG) {
            (None, TRUSTS_FIRST) => panic!("no end"),
            (None, NO_END) => bytes.len(),
            (None, _) => return refuse(),
            (Some(length), _) => length,
        };
        let name = bytes[..length].to_vec();
        *bytes = match BUG {
            END_LEFT => &bytes[length..],
            TAKES_ALL => &[],
            _ => bytes.get(length + 1..).unwrap_or_default(),
        };
        Ok(Self(name))
    }
}

fn names<const BUG: u8>() -> Vec<Name<BUG>> {
    let names = ["", "a", "ab", "abc", "b"].map(|name| Name(name.as_bytes().to_vec()));
    names.into_iter().collect()
}

fn found<const BUG: u8>() -> (Form, Violation) {
    of(check_ordered_keys(names::<BUG>()))
}

fn of(result: Result<(), Violation>) -> (Form, Violation) {
    match result.expect_err("planted, and not found") {
        Violation::Ordered { form, violation } => (form, *violation),
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_planted_and_nothing_found() {
    check_ordered_keys(names::<NOTHING>()).unwrap();
}

#[test]
fn a_sample_of_nothing() {
    let nothing = check_ordered_keys(Vec::<u32>::new());
    found!(nothing.unwrap_err(), Violation::NoSample);
}

/// Little-endian, or with the sign as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Number<const LITTLE: bool>(i32);

impl<const LITTLE: bool> OrderedKey for Number<LITTLE> {
    fn write_last(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&match LITTLE {
            true => self.0.to_le_bytes(),
            false => self.0.to_be_bytes(),
        });
    }

    fn write_first(&self, into: &mut Vec<u8>) {
        self.write_last(into);
    }

    fn read_last(mut bytes: &[u8]) -> Result<Self, CodecError> {
        let number = Self::read_first(&mut bytes)?;
        if bytes.is_empty() {
            Ok(number)
        } else {
            refuse()
        }
    }

    fn read_first(bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let Some((number, rest)) = bytes.split_first_chunk() else {
            return refuse();
        };
        *bytes = rest;
        Ok(Self(match LITTLE {
            true => i32::from_le_bytes(*number),
            false => i32::from_be_bytes(*number),
        }))
    }
}

#[test]
fn numbers_that_do_not_sort() {
    check_ordered_keys([0, 1, 256].map(Number::<false>)).unwrap();
    let result = check_ordered_keys([0, 1, -1].map(Number::<false>));
    let text = result.as_ref().unwrap_err().to_string();
    let expected = "`write_last` and `read_last`: the key Number(-1) is not above Number(0), but";
    assert!(text.starts_with(expected), "{text}");
    found!(of(result), (Form::Last, Violation::Misordered { .. }));
    let result = check_ordered_keys([0, 1, 256].map(Number::<true>));
    found!(of(result), (Form::Last, Violation::Misordered { .. }));
}

macro_rules! found_in {
    ($bug:expr, $form:pat, $violation:pat) => {
        let (form, violation) = found::<$bug>();
        assert!(
            matches!((form, &violation), ($form, $violation)),
            "{form}: {violation}"
        );
    };
}

#[test]
fn bytes_that_do_not_sort() {
    found_in!(LENGTH_FIRST, Form::Last, Violation::Misordered { .. });
    found_in!(HIGH_END, Form::First, Violation::Misordered { .. });
}

#[test]
fn keys_without_an_end() {
    found_in!(NO_END, Form::First, Violation::NoEnd { .. });
    let zeros = ["a", "a\0", "b"].map(|name| Name::<ZERO_WITHIN>(name.as_bytes().to_vec()));
    let result = check_ordered_keys(zeros);
    found!(of(result), (Form::First, Violation::NoEnd { .. }));
}

#[test]
fn what_comes_behind_is_not_left_as_it_was() {
    found_in!(END_LEFT, Form::First, Violation::AnotherValue { .. });
    found_in!(TAKES_ALL, Form::First, Violation::AnotherValue { .. });
}

#[test]
fn damaged_keys_are_a_panic() {
    found_in!(TRUSTS_LAST, Form::Last, Violation::Panicked { .. });
    found_in!(TRUSTS_FIRST, Form::First, Violation::Panicked { .. });
}

#[test]
fn the_buffer_is_cleared() {
    found_in!(CLEARS_LAST, Form::Last, Violation::NotAppended { .. });
    found_in!(CLEARS_FIRST, Form::First, Violation::NotAppended { .. });
}

#[test]
fn two_keys_have_the_same_bytes() {
    found_in!(FORGETS, Form::Last, Violation::SameBytes { .. });
}

/// The name that a pair begins with.
#[derive(Debug)]
struct Part<const BUG: u8>(Name<BUG>);

impl<const BUG: u8> PrefixOf<(Name<BUG>, u32)> for Part<BUG> {
    fn write_prefix(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0.0);
        if BUG != NO_END {
            into.push(0);
        }
    }
}

/// A prefix of a name.
#[derive(Debug)]
struct Start(&'static [u8]);

impl<const BUG: u8> PrefixOf<Name<BUG>> for Start {
    fn write_prefix(&self, into: &mut Vec<u8>) {
        match BUG {
            PREFIX_CLEARS => into.clear(),
            PREFIX_PANICS => panic!("no"),
            _ => {}
        }
        into.extend_from_slice(self.0);
        if BUG == PREFIX_ENDS {
            into.push(0);
        }
    }
}

fn parts<const BUG: u8>() -> Result<(), Violation> {
    let keys = names::<BUG>().into_iter().map(|name| (name, 7));
    let prefixes: Vec<_> = names::<BUG>().into_iter().map(Part).collect();
    check_prefixes(keys, &prefixes, |key, part: &Part<BUG>| key.0 == part.0)
}

fn starts<const BUG: u8>() -> Result<(), Violation> {
    let prefixes = [Start(b""), Start(b"a"), Start(b"ab"), Start(b"x")];
    check_prefixes(names::<BUG>(), &prefixes, |name, start: &Start| {
        name.0.starts_with(start.0)
    })
}

#[test]
fn prefixes() {
    parts::<NOTHING>().unwrap();
    starts::<NOTHING>().unwrap();
    let none: [&Start; 0] = [];
    let nothing = check_prefixes(names::<NOTHING>(), none, |_, _| true);
    found!(nothing.unwrap_err(), Violation::NoSample);
}

#[test]
fn a_prefix_finds_others() {
    found!(
        parts::<NO_END>().unwrap_err(),
        Violation::PrefixOfOthers { .. }
    );
}

#[test]
fn a_prefix_leaves_keys_out() {
    found!(
        starts::<PREFIX_ENDS>().unwrap_err(),
        Violation::NoPrefix { .. }
    );
}

#[test]
fn a_prefix_is_not_appended() {
    found!(
        starts::<PREFIX_CLEARS>().unwrap_err(),
        Violation::NotAppended { .. }
    );
    found!(
        starts::<PREFIX_PANICS>().unwrap_err(),
        Violation::Panicked { .. }
    );
}
