//! Checks an OCSP response before it is stapled (RFC 6960, section 4.2.1): that it is one, and that it has not
//! expired. Only the client verifies its signature.

use std::time::{Duration, SystemTime};

/// Reasons why a response is not stapled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// The file is not an OCSP response.
    #[error("it is no OCSP response in DER")]
    Malformed,
    /// The responder reported an error.
    #[error("it says that the responder had no answer (status {0})")]
    NoAnswer(u8),
    /// The response has expired; a client would reject the connection.
    #[error("it is out of date: fetch a new one")]
    OutOfDate,
}

/// Returns when the response expires, if it states that; an error if it must not be presented at `now`.
pub(super) fn look(response: &[u8], now: SystemTime) -> Result<Option<SystemTime>, Unfit> {
    let next = next_update(response)?;
    if next.is_some_and(|next| next <= now) { Err(Unfit::OutOfDate) } else { Ok(next) }
}

/// Returns `nextUpdate` of the first single response, which is that of the requested certificate.
fn next_update(response: &[u8]) -> Result<Option<SystemTime>, Unfit> {
    let malformed = Unfit::Malformed;
    let mut outer = Reader(Reader(response).of(SEQUENCE).ok_or(malformed)?);
    match outer.of(ENUMERATED).ok_or(malformed)? {
        [0] => {}
        [status] => return Err(Unfit::NoAnswer(*status)),
        _ => return Err(malformed),
    }
    let mut walk = || {
        // responseBytes [0] { SEQUENCE { type, OCTET STRING } } contains a BasicOCSPResponse, and that ResponseData.
        let mut bytes = Reader(Reader(outer.of(context(0))?).of(SEQUENCE)?);
        bytes.of(OBJECT_IDENTIFIER)?;
        let mut data = Reader(Reader(Reader(bytes.of(OCTET_STRING)?).of(SEQUENCE)?).of(SEQUENCE)?);
        // version [0], then responderID [1] or [2], producedAt, responses.
        data.skip_if(context(0));
        data.any()?;
        data.of(GENERALIZED_TIME)?;
        let mut single = Reader(Reader(data.of(SEQUENCE)?).of(SEQUENCE)?);
        single.of(SEQUENCE)?;
        single.any()?;
        single.of(GENERALIZED_TIME)?;
        Some(single.of(context(0)).map(<[u8]>::to_vec))
    };
    let Some(next) = walk().ok_or(malformed)? else { return Ok(None) };
    let time = Reader(&next).of(GENERALIZED_TIME).ok_or(malformed)?;
    generalized(time).map(Some).ok_or(malformed)
}

const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// Returns the constructed context-specific tag `[number]`.
const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// Reads consecutive DER elements (X.690, section 8.1).
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the content of the next element if it has this tag; otherwise the element stays.
    fn of(&mut self, tag: u8) -> Option<&'a [u8]> {
        (self.0.first() == Some(&tag)).then(|| self.any()).flatten()
    }

    fn skip_if(&mut self, tag: u8) {
        self.of(tag);
    }

    /// Returns the content of the next element.
    fn any(&mut self) -> Option<&'a [u8]> {
        let (&first, mut rest) = self.0.get(1..)?.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // No response has more than 2^32 bytes; an indefinite length is not DER.
            0x81..=0x84 => {
                let (bytes, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = behind;
                bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some(content)
    }
}

/// Parses `YYYYMMDDHHMMSSZ`, as required by RFC 5280 (section 4.1.2.5.2).
fn generalized(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1 March of the year 0: the leap day is the last of its year (civil calendar).
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    let seconds = (days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    /// Builds a response like `openssl ocsp -respout`, without the parts that are not read here.
    fn response(status: u8, next_update: Option<&str>) -> Vec<u8> {
        let time = |text: &str| element(GENERALIZED_TIME, text.as_bytes());
        let next = next_update.map(|text| element(context(0), &time(text))).unwrap_or_default();
        let single = [element(SEQUENCE, b"certID"), vec![0x80, 0], time("20260101000000Z"), next];
        let responses = element(SEQUENCE, &element(SEQUENCE, &single.concat()));
        let data = [element(context(2), b"key"), time("20260101000000Z"), responses].concat();
        let basic = element(SEQUENCE, &[element(SEQUENCE, &data), element(SEQUENCE, b"")].concat());
        let bytes = [element(OBJECT_IDENTIFIER, b"basic"), element(OCTET_STRING, &basic)].concat();
        let bytes = element(context(0), &element(SEQUENCE, &bytes));
        element(SEQUENCE, &[vec![ENUMERATED, 1, status], bytes].concat())
    }

    fn at(text: &str) -> SystemTime {
        generalized(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_response_is_stapled_until_its_next_update() {
        let good = response(0, Some("20260108000000Z"));
        let until = at("20260108000000Z");
        assert_eq!(look(&good, at("20260107235959Z")), Ok(Some(until)));
        assert_eq!(look(&good, at("20260108000000Z")), Err(Unfit::OutOfDate));
        assert_eq!(look(&response(0, None), at("20360101000000Z")), Ok(None));
    }

    #[test]
    fn a_response_without_a_status_is_not_stapled() {
        let now = at("20260102000000Z");
        assert_eq!(look(&response(3, None), now), Err(Unfit::NoAnswer(3)));
        let good = response(0, Some("20260108000000Z"));
        for end in 0..good.len() {
            assert_eq!(look(&good[..end], now), Err(Unfit::Malformed), "cut at {end}");
        }
        assert_eq!(look(b"-----BEGIN OCSP RESPONSE-----", now), Err(Unfit::Malformed));
    }

    #[test]
    fn asn1_times_are_parsed() {
        let seconds =
            |text: &str| at(text).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(seconds("19700101000000Z"), 0);
        assert_eq!(seconds("20000229120000Z"), 951_825_600);
        assert_eq!(seconds("20261121201640Z"), 1_795_292_200);
        for wrong in
            ["20261121201640", "2026112120164Z", "20261321201640Z", "20261121201640.5Z", ""]
        {
            assert_eq!(generalized(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
