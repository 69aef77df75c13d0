//! Times as logs write them, in UTC.

use std::time::Duration;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time since 1970 as RFC 3339 has it, with milliseconds: `2000-02-29T00:00:00.000Z`.
pub fn utc(since_1970: Duration) -> String {
    let (year, month, day) = date(days(since_1970));
    let (hour, minute, second) = time_of_day(since_1970);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since_1970.subsec_millis()
    )
}

/// A time since 1970 as access logs of web servers have it: `29/Feb/2000:00:00:00 +0000`.
pub fn combined_time(since_1970: Duration) -> String {
    let (year, month, day) = date(days(since_1970));
    let (hour, minute, second) = time_of_day(since_1970);
    let month = usize::try_from(month - 1).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&"-");
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

fn days(since_1970: Duration) -> u64 {
    since_1970.as_secs() / 86_400
}

fn time_of_day(since_1970: Duration) -> (u64, u64, u64) {
    let second = since_1970.as_secs() % 86_400;
    (second / 3600, second / 60 % 60, second % 60)
}

/// The date of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms"). In this calculation years
/// begin in March, so that the leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let since_march_of_0 = days + 719_468;
    let (era, day) = (since_march_of_0 / DAYS_OF_400_YEARS, since_march_of_0 % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_that_everybody_can_read() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(utc(Duration::from_millis(1_001)), "1970-01-01T00:00:01.001Z");
        assert_eq!(combined_time(Duration::from_secs(1_735_689_599)), "31/Dec/2024:23:59:59 +0000");
    }
}
