//! Measures how much booting ahead saves: the same requests in the model that would run and in `request`, on this machine.

use pool::Model;

use super::{Report, Topic};
use crate::app::measure;
use crate::app::plan::Plan;
use crate::config::Settings;
use crate::ops::fallback_cost::Cost;

/// Booting ahead is worth its restrictions if it saves at least this share of a request's processor time.
const WORTH: f64 = 0.05;

/// Measures both models and reports the share of a request that is booted ahead.
pub(crate) async fn look(
    report: &mut Report,
    plan: &Plan,
    settings: &Settings,
    options: impl Fn(&Plan) -> pool::Options,
) {
    let Some(model) = plan.php.as_ref().map(|php| php.model) else { return };
    if !model.boots_in_zygote() {
        return;
    }
    match measure::ahead(plan, settings, options).await {
        Ok((ahead, request)) => compare(report, model, &ahead, &request),
        Err(why) => {
            report.fine(Topic::Model, format!("what booting ahead saves is not measured: {why}"));
        }
    }
}

fn compare(report: &mut Report, model: Model, ahead: &Cost, request: &Cost) {
    let (what, ours, theirs) = match (ahead.processor_ms, request.processor_ms) {
        (Some(ours), Some(theirs)) => (" of processor time", ours, theirs),
        _ => ("", ahead.wall_ms, request.wall_ms),
    };
    let saved = 1.0 - ours / theirs;
    let name = model.name();
    let figures = format!("{ours:.2} ms{what} in `{name}`, {theirs:.2} ms in `request`");
    if saved >= WORTH {
        let share = saved * 100.0;
        let what = format!("{share:.0} % of a request is booted ahead: {figures}");
        return report.fine(Topic::Model, what);
    }
    report.warning(
        Topic::Model,
        format!("booting ahead saves less than {:.0} % of a request: {figures}", WORTH * 100.0),
        "use `--model request`, or name pages in `php.warm_up` that use what most requests use, and measure again",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(ahead: f64, request: f64) -> String {
        let cost = |ms| Cost { requests: 20, processor_ms: Some(ms), wall_ms: ms };
        let mut report = Report::default();
        compare(&mut report, Model::Snapshot, &cost(ahead), &cost(request));
        report.text(false)
    }

    #[test]
    fn the_share_of_a_request_and_the_advice_are_reported() {
        let worth = reported(3.0, 10.0);
        assert!(
            worth.contains("70 % of a request is booted ahead: 3.00 ms of processor time in `snapshot`, 10.00 ms in `request`"),
            "{worth}"
        );
        for ahead in [9.8, 11.0] {
            let not = reported(ahead, 10.0);
            assert!(
                not.contains("saves less than 5 %") && not.contains("--model request"),
                "{not}"
            );
        }
    }
}
