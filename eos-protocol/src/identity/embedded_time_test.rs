use proptest::prelude::*;

use super::*;

const V7: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

fn uuid(text: &str) -> Result<TimedId, TimedIdError> {
    TimedId::parse(TimedIdFormat::UuidV7, text.as_bytes())
}

fn ulid(text: &str) -> Result<TimedId, TimedIdError> {
    TimedId::parse(TimedIdFormat::Ulid, text.as_bytes())
}

/// The example of RFC 9562, appendix A.6, and that of the ULID specification.
#[test]
fn the_examples_of_the_specifications_have_their_times() {
    assert_eq!(uuid(V7).unwrap().time(), Timestamp(1_645_557_742_000));
    assert_eq!(uuid(&V7.to_uppercase()), uuid(V7));
    let id = ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
    assert_eq!(id.time(), Timestamp(1_469_922_850_259));
    assert_eq!(ulid("01arz3ndektsv4rrffq69g5fav"), Ok(id));
    let last = ulid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ").unwrap();
    assert_eq!(last.bytes, [0xff; 16]);
    assert_eq!(last.time(), Timestamp((1 << 48) - 1));
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    use TimedIdError::{Character, Length, TooHigh, Variant, Version};
    let length = |expected, found| Err(Length { expected, found });
    let character = |at, found| Err(Character { at, found });
    assert_eq!(uuid(""), length(36, 0));
    assert_eq!(uuid(&V7[1..]), length(36, 35));
    assert_eq!(uuid(&V7.replace('-', "")), length(36, 32));
    assert_eq!(uuid(&V7.replace("79b0-7", "79b07-")), character(13, b'7'));
    assert_eq!(uuid(&V7.replace("7cc3", "7cg3")), character(16, b'g'));
    assert_eq!(uuid(&V7.replace("7cc3", "4cc3")), Err(Version(4)));
    assert_eq!(uuid(&V7.replace("98c4", "c8c4")), Err(Variant));
    assert_eq!(uuid("00000000-0000-0000-0000-000000000000"), Err(Variant));
    assert_eq!(ulid(V7), length(26, 36));
    assert_eq!(ulid("8ZZZZZZZZZZZZZZZZZZZZZZZZZ"), Err(TooHigh));
    assert_eq!(ulid("01ARZ3NDEKTSV4RRFFQ69G5FAU"), character(25, b'U'));
    assert_eq!(ulid("01ARZ3NDEKTSV4RRFFQ69G5F-V"), character(24, b'-'));
}

const DAY: i64 = 86_400_000;

/// R47.
#[test]
fn an_id_is_known_for_seven_days_and_accepted_ten_minutes_early() {
    let ids = TimedIds::remembered_for(Duration::from_secs(7 * 86_400));
    let age = |id| ids.age(Timestamp(id), Timestamp(100 * DAY));
    let is_current = |id| matches!(age(id), IdAge::Current(_));
    assert!(is_current(93 * DAY));
    let day = Duration::from_secs(86_400);
    let ms = Duration::from_millis(1);
    assert_eq!(age(93 * DAY - 1), IdAge::TooOld(7 * day + ms));
    assert!(is_current(100 * DAY + 600_000));
    assert_eq!(age(100 * DAY + 600_001), IdAge::Future(MOST_SKEW + ms));
    // The design note has this value: 1.06 windows.
    assert_eq!(ids.expiry().retention(), 7 * day + 7 * day / 16);
}

#[test]
fn durations_that_can_not_work_are_refused() {
    let check = |ms, horizon: Option<u64>| {
        let ids = TimedIds::remembered_for(Duration::from_millis(ms));
        ids.check(horizon.map(Duration::from_millis))
    };
    assert_eq!(check(0, None), Err(SeenWindowError::TooShort));
    assert_eq!(check(1, None), Ok(()));
    assert_eq!(check(5, Some(5)), Ok(()));
    assert!(check(5, Some(6)).is_err());
}

proptest! {
    /// A bucket that decides about a current id has not expired, and each id has one bucket.
    #[test]
    fn the_bucket_of_a_current_id_is_kept(
        remember in 1_i64..100, id in 0_i64..1_000, stream_time in 0_i64..1_000,
    ) {
        let ids = TimedIds::remembered_for(duration(remember));
        let age = ids.age(Timestamp(id), Timestamp(stream_time));
        prop_assert_eq!(matches!(age, IdAge::TooOld(_)), id < stream_time - remember);
        if let IdAge::Current(bucket) = age {
            prop_assert!(bucket.0 <= id && id < bucket.0 + ids.bucket());
            prop_assert!(!ids.expiry().is_expired(bucket, Some(Timestamp(stream_time))));
            let later = ids.age(Timestamp(id), Timestamp(stream_time + 1));
            prop_assert!(!matches!(later, IdAge::Current(other) if other != bucket));
        }
    }

    #[test]
    fn two_texts_of_one_id_are_equal_and_of_two_ids_are_not(
        a in any::<[u8; 16]>(), b in any::<[u8; 16]>(),
    ) {
        let text = |mut id: [u8; 16]| {
            id[6] = 0x70 | id[6] & 0x0f;
            id[8] = 0x80 | id[8] & 0x3f;
            let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
        };
        prop_assert_eq!(uuid(&text(a)), uuid(&text(a).to_uppercase()));
        prop_assert_eq!(uuid(&text(a)) == uuid(&text(b)), text(a) == text(b));
    }
}
