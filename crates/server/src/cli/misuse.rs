//! Errors of a command line, in this program's words.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// Commands and flags of other servers, and the ones of Hearth that do the same.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("start", "serve"),
    ("run", "serve"),
    ("up", "serve"),
    ("--port", "--listen :8080"),
    ("-p", "--listen :8080"),
    ("--host", "--listen 0.0.0.0:8080"),
    ("--acme-email", "--acme-contact"),
];

/// Rewords clap's error: what is wrong first, what to do last.
pub(super) fn misused(error: &clap::Error) -> Failure {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag_name = |text: &str| text.split([' ', '=']).next().unwrap_or_default().to_owned();
    let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == argument || *name == command);
    let suggested = other
        .map(|(_, ours)| (*ours).to_owned())
        .or_else(|| context(ContextKind::SuggestedArg))
        .or_else(|| context(ContextKind::SuggestedSubcommand))
        .map(|name| format!("did you mean `{name}`?"));
    let (message, hint) = match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => (
            format!("unknown flag `{argument}`"),
            suggested.unwrap_or_else(|| "`hearth serve --help` names every flag".into()),
        ),
        ErrorKind::UnknownArgument => (
            format!("unexpected argument `{argument}`"),
            "`hearth --help` shows how each command is called".into(),
        ),
        ErrorKind::InvalidSubcommand => (
            format!("unknown command `{command}`"),
            suggested.unwrap_or_else(|| "`hearth --help` names the commands".into()),
        ),
        ErrorKind::ArgumentConflict => (
            format!("`{}` may be given only once", flag_name(&argument)),
            "leave all but one out".into(),
        ),
        // A shell's `"$APP"` that is not set.
        ErrorKind::InvalidValue if !argument.starts_with('-') => (
            format!("{} is empty", argument.trim_matches(['[', ']', '<', '>'])),
            "name the application's folder, or leave it out".into(),
        ),
        ErrorKind::InvalidValue | ErrorKind::NoEquals | ErrorKind::WrongNumberOfValues => {
            (format!("`{}` needs a value", flag_name(&argument)), format!("write `{argument}`"))
        }
        ErrorKind::MissingRequiredArgument => (
            format!("{argument} is missing"),
            "`hearth --help` shows how each command is called".into(),
        ),
        _ => return Failure::help(error.render().to_string()),
    };
    Failure::misused(message, hint)
}
