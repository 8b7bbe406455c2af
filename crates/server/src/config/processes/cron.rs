//! Lines of crontab(5): five fields, or a name such as `@hourly`. Which minutes they mean, by a local date and time.
//!
//! Invariants
//! - Pure: it knows neither the time nor a zone.
//! - A day fits if its day of the month or its weekday fits when both are restricted, as in every cron; else if both do.

use std::fmt;
use std::path::Path;

use jiff::civil::{Date, DateTime};

use super::super::value::{Raw, Value, Wrong};

/// The minutes at which something is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
    /// Days of the month and weekdays are both restricted.
    either_day: bool,
    /// The minute or the hour begins with `*`.
    follows_clock: bool,
}

/// A field: its name, the least and the greatest number, and names of numbers from the least on.
struct Field(&'static str, u8, u8, &'static [&'static str]);

const MINUTE: Field = Field("minute", 0, 59, &[]);
const HOUR: Field = Field("hour", 0, 23, &[]);
const DAY: Field = Field("day of the month", 1, 31, &[]);
const MONTH: Field = Field(
    "month",
    1,
    12,
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
);
/// 7 is Sunday, too.
const WEEKDAY: Field = Field("weekday", 0, 7, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

/// Names of whole lines.
const NAMES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Value for Cron {
    const PLACEHOLDER: &str = "CRON";
    const EXPECTED: &str = "five fields (minute, hour, day of the month, month, weekday) such as `*/5 8-18 * * mon-fri`, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let cron = Self::read(text).map_err(|why| Wrong(format!("`{text}`, where {why}")))?;
        if cron.is_ever_due() {
            Ok(cron)
        } else {
            Err(Wrong(format!("`{text}`, which is never due")))
        }
    }
}

impl Cron {
    /// Reads a line; an error says what is wrong with it, to follow "where".
    fn read(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let line = NAMES.iter().find(|(name, _)| *name == lower).map_or(&*lower, |(_, line)| line);
        if line.starts_with('@') {
            return Err("the name is unknown".into());
        }
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[minute, hour, day, month, weekday] = &fields[..] else {
            return Err(format!("there are {} fields", fields.len()));
        };
        let mut weekdays = WEEKDAY.read(weekday)?;
        weekdays |= (weekdays >> 7) & 1;
        Ok(Self {
            text: text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY.read(day)?,
            months: MONTH.read(month)?,
            weekdays,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            follows_clock: minute.starts_with('*') || hour.starts_with('*'),
        })
    }

    /// Returns whether it is due in that minute.
    pub(crate) fn fits(&self, at: DateTime) -> bool {
        has(self.minutes, at.minute()) && has(self.hours, at.hour()) && self.fits_date(at.date())
    }

    /// Returns whether it is due on that day.
    pub(crate) fn fits_date(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let days = if self.either_day { day || weekday } else { day && weekday };
        days && has(self.months, date.month())
    }

    /// Returns whether it means intervals, such as every ten minutes, and no time of the day: then a clock that is put
    /// forward or back changes nothing.
    pub(crate) fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    /// Returns whether there is a day for it. Calendars repeat after 28 years while no century lies between.
    fn is_ever_due(&self) -> bool {
        let mut date = Date::constant(2024, 1, 1);
        while date.year() < 2052 {
            if self.fits_date(date) {
                return true;
            }
            let Ok(next) = date.tomorrow() else { return false };
            date = next;
        }
        false
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set >> number & 1 == 1)
}

impl Field {
    /// Reads a list of ranges with steps into a set.
    fn read(&self, text: &str) -> Result<u64, String> {
        let mut set = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let (least, most) = match range.split_once('-') {
                _ if range == "*" => (self.1, self.2),
                Some((least, most)) => (self.number(least)?, self.number(most)?),
                // A step needs a range to go through.
                None if step.is_some() => return Err(self.wrong(part)),
                None => (self.number(range)?, self.number(range)?),
            };
            let step = match step.map(str::parse::<u8>) {
                None => 1,
                Some(Ok(step)) if step > 0 => step,
                Some(_) => return Err(self.wrong(part)),
            };
            if least > most {
                return Err(self.wrong(part));
            }
            for number in (least..=most).step_by(step.into()) {
                set |= 1 << number;
            }
        }
        Ok(set)
    }

    fn number(&self, text: &str) -> Result<u8, String> {
        let named = self.3.iter().position(|name| *name == text);
        let named = named.and_then(|place| u8::try_from(place).ok()).map(|place| self.1 + place);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = named.or_else(|| text.parse().ok().filter(|_| digits));
        number.filter(|number| (self.1..=self.2).contains(number)).ok_or_else(|| self.wrong(text))
    }

    fn wrong(&self, text: &str) -> String {
        let Self(name, least, most, _) = self;
        format!("`{text}` is no {name} ({least} to {most})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(text: &str) -> Cron {
        Cron::parse(&Raw::Text(text.into()), Path::new("/")).unwrap()
    }

    fn fits(text: &str, at: &str) -> bool {
        cron(text).fits(at.parse().unwrap())
    }

    #[test]
    fn fields_take_lists_ranges_steps_and_names() {
        // 2026-11-26 is a Thursday.
        for (text, at, due) in [
            ("* * * * *", "2026-11-26T12:34", true),
            ("34 12 * * *", "2026-11-26T12:34", true),
            ("35 12 * * *", "2026-11-26T12:34", false),
            ("*/17 * * * *", "2026-11-26T12:34", true),
            ("*/15 * * * *", "2026-11-26T12:34", false),
            ("0-40/10,34 8-18 * * *", "2026-11-26T12:34", true),
            ("0-40/10 8-18 * * *", "2026-11-26T12:30", true),
            ("* * * nov THU", "2026-11-26T12:34", true),
            ("* * * jan-oct *", "2026-11-26T12:34", false),
            ("* * * * mon-wed,fri", "2026-11-26T12:34", false),
            ("* * * * 7", "2026-11-29T00:00", true),
            ("* * * * 0", "2026-11-29T00:00", true),
            ("* * * * 5-7", "2026-11-29T00:00", true),
            ("@hourly", "2026-11-26T12:00", true),
            ("@hourly", "2026-11-26T12:01", false),
            ("@Daily", "2026-11-26T00:00", true),
            ("@weekly", "2026-11-29T00:00", true),
            ("@monthly", "2026-12-01T00:00", true),
            ("@yearly", "2027-01-01T00:00", true),
        ] {
            assert_eq!(fits(text, at), due, "{text} at {at}");
        }
    }

    #[test]
    fn either_of_two_restricted_days_is_enough() {
        for (text, at, due) in [
            ("0 0 13 * fri", "2026-11-13T00:00", true),
            ("0 0 13 * fri", "2026-11-20T00:00", true),
            ("0 0 13 * fri", "2026-12-13T00:00", true),
            ("0 0 13 * fri", "2026-12-14T00:00", false),
            ("0 0 13 * *", "2026-11-20T00:00", false),
            ("0 0 * * fri", "2026-12-13T00:00", false),
            // A field that begins with `*` restricts nothing by itself.
            ("0 0 */2 * fri", "2026-11-13T00:00", true),
            ("0 0 */2 * fri", "2026-11-20T00:00", false),
        ] {
            assert_eq!(fits(text, at), due, "{text} at {at}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_by_name() {
        for (text, why) in [
            ("", "there are 0 fields"),
            ("* * * *", "there are 4 fields"),
            ("* * * * * *", "there are 6 fields"),
            ("60 * * * *", "`60` is no minute (0 to 59)"),
            ("* 24 * * *", "`24` is no hour (0 to 23)"),
            ("* * 0 * *", "`0` is no day of the month (1 to 31)"),
            ("* * * 13 *", "`13` is no month (1 to 12)"),
            ("* * * * 8", "`8` is no weekday (0 to 7)"),
            ("* * * * monday", "`monday` is no weekday (0 to 7)"),
            ("5/10 * * * *", "`5/10` is no minute"),
            ("*/0 * * * *", "`*/0` is no minute"),
            ("30-10 * * * *", "`30-10` is no minute"),
            ("1,,2 * * * *", "`` is no minute"),
            ("-1 * * * *", "`` is no minute"),
            ("+1 * * * *", "`+1` is no minute"),
            ("@reboot", "the name is unknown"),
            ("0 0 30 2 *", "which is never due"),
        ] {
            let wrong = Cron::parse(&Raw::Text(text.into()), Path::new("/")).unwrap_err();
            assert!(wrong.0.contains(why), "{text}: {}", wrong.0);
        }
        cron("0 0 29 2 *");
    }
}
