//! Times as providers write them, and how far one may be from now.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Refused;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis,
    /// As RFC 3339 writes it: `2015-05-18T15:45:13Z`.
    Rfc3339,
}

impl Unit {
    /// Reads one. Digits only: no sign, no fraction, no space.
    pub fn read(self, text: &str) -> Option<SystemTime> {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = || text.parse().ok().filter(|_| is_number);
        let after = match self {
            Self::Seconds => Duration::from_secs(number()?),
            Self::Millis => Duration::from_millis(number()?),
            Self::Rfc3339 => return rfc3339(text),
        };
        UNIX_EPOCH.checked_add(after)
    }
}

/// Whether a signed time is near enough, in both directions, in whole seconds.
pub(super) fn near(at: SystemTime, now: SystemTime, tolerance: Duration) -> Result<(), Refused> {
    let age = now.duration_since(at).unwrap_or_default();
    let ahead = at.duration_since(now).unwrap_or_default();
    if age.as_secs() > tolerance.as_secs() {
        return Err(Refused::Stale);
    }
    if ahead.as_secs() > tolerance.as_secs() {
        return Err(Refused::TooNew);
    }
    Ok(())
}

/// Date, `T`, time, a fraction or none, `Z` or an offset.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date_and_time, rest) = text.split_at_checked(19)?;
    let bytes = date_and_time.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes.get(*at) != Some(mark)) {
        return None;
    }
    let number = |from: usize, to: usize| digits(date_and_time.get(from..to)?);
    let parts = [
        number(0, 4)?,
        number(5, 7)?,
        number(8, 10)?,
        number(11, 13)?,
        number(14, 16)?,
        number(17, 19)?,
    ];
    let (nanos, zone) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.find(|c: char| !c.is_ascii_digit())?;
            let kept = fraction.get(..end.min(9)).filter(|kept| !kept.is_empty())?;
            (digits(&format!("{kept:0<9}"))?, fraction.get(end..)?)
        }
        None => (0, rest),
    };
    let local = civil(parts)?.checked_add(Duration::from_nanos(nanos.into()))?;
    if matches!(zone, "Z" | "z") {
        return Some(local);
    }
    let (sign, offset) = zone.split_at_checked(1)?;
    let (hours, minutes) = offset
        .split_once(':')
        .unwrap_or(offset.split_at_checked(2)?);
    let minutes = digits(hours)?
        .checked_mul(60)?
        .checked_add(digits(minutes)?)?;
    let offset = Duration::from_secs(u64::from(minutes.min(24 * 60)) * 60);
    match sign {
        "+" => local.checked_sub(offset),
        "-" => local.checked_add(offset),
        _ => None,
    }
}

fn digits(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Year, month, day, hour, minute, second, from 1970 on.
pub(super) fn civil([year, month, day, hour, minute, second]: [u32; 6]) -> Option<SystemTime> {
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = |y: u32| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let length = |m: u32| match m {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=length(month)).contains(&day) {
        return None;
    }
    let leaps = |y: u32| y / 4 - y / 100 + y / 400;
    let of_years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let days = of_years + (1..month).map(length).sum::<u32>() + day - 1;
    let seconds = u64::from(days) * 86_400 + u64::from(hour * 3600 + minute * 60 + second);
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(unit: Unit, text: &str) -> Option<u64> {
        let at = unit.read(text)?;
        Some(at.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_are_read_as_they_are_meant_or_not_at_all() {
        for (unit, text, means) in [
            (Unit::Seconds, "1614265330", Some(1_614_265_330)),
            (Unit::Seconds, "-1", None),
            (Unit::Seconds, "+1", None),
            (Unit::Seconds, "1.0", None),
            (Unit::Seconds, "", None),
            (Unit::Seconds, "Infinity", None),
            (Unit::Seconds, "99999999999999999999", None),
            (Unit::Millis, "1693657560999", Some(1_693_657_560)),
            (Unit::Rfc3339, "1970-01-01T00:00:00Z", Some(0)),
            (Unit::Rfc3339, "2015-05-18T15:45:13Z", Some(1_431_963_913)),
            (
                Unit::Rfc3339,
                "2015-05-18T17:45:13+02:00",
                Some(1_431_963_913),
            ),
            (
                Unit::Rfc3339,
                "2015-05-18T10:45:13.999-0500",
                Some(1_431_963_913),
            ),
            (Unit::Rfc3339, "2024-02-29T00:00:00Z", Some(1_709_164_800)),
            (Unit::Rfc3339, "2100-02-29T00:00:00Z", None),
            (Unit::Rfc3339, "2015-13-18T15:45:13Z", None),
            (Unit::Rfc3339, "2015-05-18T15:45:13", None),
            (Unit::Rfc3339, "2015-05-18T15:45:13.Z", None),
            (Unit::Rfc3339, "2015-05-18T15:45:1éZ", None),
            (Unit::Rfc3339, "1969-05-18T15:45:13Z", None),
        ] {
            assert_eq!(seconds(unit, text), means, "{unit:?} {text}");
        }
    }

    #[test]
    fn the_tolerance_has_two_sides_and_its_edge_is_inside() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let five = Duration::from_secs(5);
        assert_eq!(near(at(100), at(105), five), Ok(()));
        assert_eq!(near(at(100), at(106), five), Err(Refused::Stale));
        assert_eq!(near(at(105), at(100), five), Ok(()));
        assert_eq!(near(at(106), at(100), five), Err(Refused::TooNew));
    }
}
