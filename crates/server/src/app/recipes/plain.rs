//! Recognises a configuration file that only sets variables: its values are the same whenever it is read.
//!
//! Invariants
//! - Every call is refused, in whatever way it is written, except those in `ALLOWED`: their answers depend on their arguments alone, or
//!   they change what a boot keeps for its requests.
//! - Code is read, never run.

use crate::app::tokens::{Token, tokens};

/// Names that may stand before an opening bracket: functions, and words of the language. The functions of `MediaWiki` load extensions.
const ALLOWED: &[&str] = &[
    "define",
    "defined",
    "dirname",
    "array_merge",
    "array_unique",
    "in_array",
    "version_compare",
    "ini_set",
    "error_reporting",
    "set_include_path",
    "wfloadextension",
    "wfloadextensions",
    "wfloadskin",
    "wfloadskins",
    "array",
    "list",
    "isset",
    "empty",
    "unset",
    "if",
    "elseif",
    "while",
    "for",
    "foreach",
    "switch",
    "case",
    "match",
    "and",
    "or",
    "xor",
    "return",
    "exit",
    "die",
    "echo",
    "print",
    "include",
    "include_once",
    "require",
    "require_once",
];

/// Returns the first thing in a file that may have another value for each request, or that runs code which is not in the file.
pub(super) fn other_than_settings(source: &[u8]) -> Option<String> {
    let tokens = tokens(source);
    tokens.iter().enumerate().find_map(|(at, token)| match token {
        Token::Char(b'(') => called(&tokens[..at]),
        Token::Name(name) if lower(name) == "new" => Some("`new`".to_owned()),
        Token::Template(text) if text.first() == Some(&b'`') => Some("a command".to_owned()),
        Token::Template(text) => {
            let is_expression = text.windows(2).any(|pair| pair == b"{$" || pair == b"${");
            let calls = is_expression && (text.contains(&b'(') || text.contains(&b'`'));
            calls.then(|| "a string that may call a function".to_owned())
        }
        _ => None,
    })
}

/// Describes what an opening bracket behind these tokens calls. `None`: nothing, or what is allowed.
fn called(before: &[Token<'_>]) -> Option<String> {
    let (last, before) = before.split_last()?;
    let is_value = "what a value names";
    match last {
        Token::Name(name) => {
            let is_member = matches!(before, [.., Token::Char(b'-'), Token::Char(b'>')])
                || matches!(before, [.., Token::Char(b':'), Token::Char(b':')]);
            let name = lower(name);
            let is_allowed = !is_member && ALLOWED.contains(&name.trim_start_matches('\\'));
            (!is_allowed).then(|| format!("{name}()"))
        }
        Token::Variable | Token::Text(_) | Token::Template(_) | Token::Char(b')' | b']' | b'}') => {
            Some(is_value.to_owned())
        }
        _ => None,
    }
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> String {
        other_than_settings(format!("<?php\n{text}").as_bytes()).unwrap_or_default()
    }

    #[test]
    fn plain_settings_have_no_call_but_those_that_are_allowed() {
        for text in [
            "if ( !defined( 'MEDIAWIKI' ) ) { exit; }\n$a = 'a (b)'; $b = [ 'c' => \"$a (d)\", 1 => ( 2 + 3 ) ];",
            "wfLoadSkin( 'Vector' ); wfLoadExtension(\"Cite\"); require_once \"$IP/extensions/A/A.php\";",
            "# date('G')\n$a['b'][] = array( 'c', NS_MAIN => true ); $c = Foo::BAR; // time()",
            "foreach ( $a as $b ) { $c[$b] = !isset( $c[$b] ) && ( $d || $e ); } ini_set( 'memory_limit', '20M' );",
            "$a = \"{$b['c']}/d\"; $e = <<<E\nf (g) $h\nE;",
            "$a = \\dirname( __FILE__ ) . '/cache';",
        ] {
            assert_eq!(found(text), "", "{text}");
        }
        for (text, expected) in [
            (
                "$wgReadOnly = file_exists( '/run/backup' ) ? 'The backup runs' : false;",
                "file_exists()",
            ),
            ("$wgSiteNotice = date('G') >= 22 ? 'night' : '';", "date()"),
            ("$a = \\Time ();", "\\time()"),
            ("$a = new DateTime;", "`new`"),
            ("$a = Foo::date( 'G' );", "date()"),
            ("$a = $b->define( 'G' );", "define()"),
            ("$a = $date( 'G' );", "what a value names"),
            ("$a = 'date'( 'G' );", "what a value names"),
            ("$a = ( 'date' )( 'G' ); $b = $c['date']( 'G' );", "what a value names"),
            ("$a = `date`;", "a command"),
            ("$a = \"{$b->date( 'G' )}\";", "a string that may call a function"),
            ("$a = \"${date('G')}\";", "a string that may call a function"),
            ("$a = <<<E\n{$b( 'G' )}\nE;", "a string that may call a function"),
            ("function a() { return 1; }", "a()"),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
