//! `hearth reload`: a running server boots its application again and switches to it.

use std::fmt::Write as _;

use crate::app::target::Target;
use crate::commands::remote::find;
use crate::config::Environment;
use crate::failure::Failure;
use crate::ops::reloads::Reloaded;

/// Runs `hearth reload`: the server of an application boots a new generation. Returns the outcome in words.
pub(crate) fn reload(target: &Target, environment: &Environment) -> Result<String, Failure> {
    let reloaded: Reloaded = find(target, environment)?.ask("POST", "/reload")?;
    let mut text = format!(
        "generation {} after {} ms: {}\n",
        reloaded.generation, reloaded.milliseconds, reloaded.explanation
    );
    if !reloaded.restart_for.is_empty() {
        let names = reloaded.restart_for.join(", ");
        writeln!(text, "not applied, restart for it: {names}").expect("a String takes all");
    }
    Ok(text)
}
