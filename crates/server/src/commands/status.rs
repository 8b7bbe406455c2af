//! `hearth status`: what a running server does.

use crate::app::target::Target;
use crate::commands::remote::find;
use crate::commands::top::{Screen, Sort, figures_of};
use crate::config::Environment;
use crate::failure::Failure;

/// The width of the printed screen, in columns.
const WIDTH: usize = 160;

/// `hearth status`: what a running server does, for people or as its `/status`; and whether it takes requests.
pub(crate) fn status(
    target: &Target,
    json: bool,
    environment: &Environment,
) -> Result<(String, bool), Failure> {
    let server = find(target, environment)?;
    let body = server.status()?;
    let figures = figures_of(&body)?;
    let ready = figures.state == "ready";
    if json {
        return Ok((String::from_utf8_lossy(&body).into_owned(), ready));
    }
    let screen = Screen { sort: Sort::Time, colour: environment.colour_stdout() };
    let lines = screen.report(&figures, &server.run_dir().display().to_string(), WIDTH);
    Ok((lines.join("\n") + "\n", ready))
}
