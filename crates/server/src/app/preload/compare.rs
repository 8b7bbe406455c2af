//! Compares answers to the same request, some of which carry tokens and clocks.

/// Returns the first place where `ours` differs from all of `theirs`, and those do not from each other. `Err`: no two of these have the same shape.
pub(super) fn difference(ours: &str, theirs: &[String]) -> Result<Option<String>, &'static str> {
    let [first, others @ ..] = theirs else { return Err("there is nothing to compare with") };
    let ours = pieces(ours);
    let first = pieces(first);
    let others: Vec<_> = others.iter().map(|text| pieces(text)).collect();
    if others.iter().any(|other| other.len() != first.len()) {
        return Err("its answers differ by themselves");
    }
    let shown = |pieces: &[&str], at: usize| {
        let from = at.saturating_sub(4);
        pieces.get(from..pieces.len().min(at + 8)).unwrap_or_default().concat()
    };
    let at = (0..ours.len().max(first.len())).find(|at| {
        let piece = first.get(*at);
        let is_fixed = others.iter().all(|other| other.get(*at) == piece);
        ours.get(*at) != piece && (is_fixed || ours.get(*at).is_none())
    });
    Ok(at.map(|at| format!("`{}` in place of `{}`", shown(&ours, at), shown(&first, at))))
}

/// Splits at the ends of words, so that a token is one piece.
fn pieces(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_%-.:".contains(c);
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn what_differs_by_itself_is_no_difference() {
        let of = |ours: &str, theirs: &[&str]| {
            difference(ours, &theirs.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of("<p>a token=9", &["<p>a token=1", "<p>a token=2"]), Ok(None));
        let found = of("<p>b token=9", &["<p>a token=1", "<p>a token=2"]).unwrap().unwrap();
        assert!(found.starts_with("`<p>b token=9` in place of `<p>a"), "{found}");
        assert!(of("<p>a", &["<p>a b", "<p>a c"]).unwrap().is_some(), "shorter");
        assert!(of("a", &["a b", "a"]).is_err());
    }
}
