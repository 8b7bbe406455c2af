//! `key=value,key=value`, with quotes where a value holds a comma.

use crate::error::Refused;

/// The pairs of a text, in order. Spaces around keys and values are not theirs; in quotes they are.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, Refused> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .ok_or_else(|| Refused::invalid(format!("{:?} has no =", rest.trim_end())))?;
        let key = key.trim();
        if key.is_empty() || key.contains(',') {
            return Err(Refused::invalid(format!("{key:?} is no key of a key=value")));
        }
        let after = after.trim_start();
        let (value, after) = if let Some(quoted) = after.strip_prefix('"') {
            unquoted(key, quoted)?
        } else {
            let end = after.find(',').unwrap_or(after.len());
            let (value, after) = after.split_at(end);
            (value.trim_end().to_owned(), after)
        };
        pairs.push((key.to_owned(), value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) if next.trim().is_empty() => {
                return Err(Refused::invalid("there is nothing behind the last comma"));
            }
            Some(next) => next.trim_start(),
            None if after.is_empty() => "",
            None => {
                let what = format!("a comma is missing behind the value of {key}");
                return Err(Refused::invalid(what));
            }
        };
    }
    Ok(pairs)
}

fn unquoted<'a>(key: &str, quoted: &'a str) -> Result<(String, &'a str), Refused> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, quoted.get(at + 1..).unwrap_or_default())),
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => {
                    return Err(Refused::invalid(format!(
                        "\\ in the value of {key} stands before \" or \\ only"
                    )));
                }
            },
            other => value.push(other),
        }
    }
    Err(Refused::invalid(format!("the value of {key} has no closing quote")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        pairs(text).map_err(|refused| refused.message)
    }

    #[test]
    fn values_may_hold_anything_when_quoted() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read(" a = 1 ,b=2 "), Ok(vec![pair("a", "1"), pair("b", "2")]));
        assert_eq!(read("a=,b=x=y"), Ok(vec![pair("a", ""), pair("b", "x=y")]));
        assert_eq!(
            read(r#"secret="a, \"b\" \\ c" , user= u "#),
            Ok(vec![pair("secret", r#"a, "b" \ c"#), pair("user", "u")])
        );
        assert_eq!(read(r#"a=x"y"#), Ok(vec![pair("a", "x\"y")]));
    }

    #[test]
    fn invalid_pairs_are_rejected() {
        for text in ["a", "a=1,", "=1", "a,b=1", r#"a="1"#, r#"a="1"2"#, r#"a="\n""#, "a=1,,b=2"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
