//! Guarded calls of a codec.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eos_client::Headers;
use eos_core::codec::{Codec, CodecError, Encoded, Field, Part};

use super::violation::{Violation, Written, shown};

/// The initial content of the buffer: outputs of the same record, or a window's start in front of a key.
const BEFORE: &[u8] = b"\x00what was there before\xff";

/// The field that a codec gets.
static NO_HEADERS: Headers = Headers::new();
const FIELD: Field<'static> = Field::new("conformance", Part::Value, &NO_HEADERS);

/// Calls a codec, and reports forbidden effects of a call.
pub(super) struct Probe<'c, C: ?Sized>(pub(super) &'c C);

impl<C: ?Sized> Probe<'_, C> {
    /// The value's bytes.
    pub(super) fn encode<T: Debug>(
        &self,
        value: &T,
    ) -> Result<Result<Written, CodecError>, Violation>
    where
        C: Codec<T>,
    {
        let doing = || format!("writing {}", shown(value));
        appended(BEFORE, value, doing, |into| {
            self.0.encode(value, into, &FIELD)
        })
    }

    /// The bytes of a value that must not be null.
    pub(super) fn written<T: Debug>(&self, value: &T) -> Result<Written, Violation>
    where
        C: Codec<T>,
    {
        self.encode(value)?.map_err(|error| Violation::Unwritable {
            value: shown(value),
            error: error.to_string(),
        })
    }

    /// As [`written`](Self::written), with an empty buffer.
    pub(super) fn written_alone<T: Debug>(&self, value: &T) -> Result<Written, Violation>
    where
        C: Codec<T>,
    {
        let doing = || format!("writing {}", shown(value));
        appended(&[], value, doing, |into| self.0.encode(value, into, &FIELD))?.map_err(|error| {
            Violation::Unwritable {
                value: shown(value),
                error: error.to_string(),
            }
        })
    }

    pub(super) fn decode<T>(&self, bytes: &Written) -> Result<Result<T, CodecError>, Violation>
    where
        C: Codec<T>,
    {
        let doing = || format!("reading {bytes}");
        guarded(doing, || self.0.decode(bytes.0.as_deref(), &FIELD))
    }

    pub(super) fn recycle<T: Debug>(&self, value: T) -> Result<(), Violation>
    where
        C: Codec<T>,
    {
        let text = shown(&value);
        guarded(|| format!("recycling {text}"), || self.0.recycle(value))
    }
}

/// The bytes that this call appends to a buffer with content.
pub(super) fn appended<E>(
    before: &[u8],
    value: &(impl Debug + ?Sized),
    doing: impl Fn() -> String,
    write: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, E>,
) -> Result<Result<Written, E>, Violation> {
    let mut buffer = before.to_vec();
    let encoded = guarded(doing, || write(&mut buffer))?;
    let Some(bytes) = buffer.strip_prefix(before) else {
        return Err(Violation::NotAppended {
            value: shown(value),
            before: before.into(),
            after: buffer.as_slice().into(),
        });
    };
    Ok(match encoded {
        Ok(Encoded::Bytes) => Ok(bytes.into()),
        Ok(Encoded::Null) if bytes.is_empty() => Ok(Written(None)),
        Ok(Encoded::Null) => {
            return Err(Violation::BytesBesideNull {
                value: shown(value),
                bytes: bytes.into(),
            });
        }
        Err(error) => Err(error),
    })
}

/// Runs a call; a panic is a violation.
pub(super) fn guarded<R>(
    doing: impl Fn() -> String,
    run: impl FnOnce() -> R,
) -> Result<R, Violation> {
    // A codec that panicked is not used again.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| Violation::Panicked {
        doing: doing(),
        message: message(&*panic),
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no text").to_owned()
}
