//! Supervised commands in `/status`, `/metrics` and the problems.

use super::table::ProcessTable;
use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::Status;
use crate::ops::subsystem::Subsystem;

impl Subsystem for ProcessTable {
    fn status(&self, status: &mut Status) {
        status.processes = Self::status(self);
    }

    fn metrics(&self) {
        for process in Self::status(self) {
            metrics_table! { &[("process", process.name.clone())];
                gauge "hearth_process_running" = process.instances.len(), "Instances of a supervised command that run";
                gauge "hearth_process_wanted" = process.count, "Instances that are to run; 1 with `cron`";
                counter "hearth_process_restarts_total" = process.restarts, "Starts after an instance had ended by itself";
                counter "hearth_process_killed_total" = process.killed, "Instances killed because they did not end within `stop_timeout`";
                gauge "hearth_process_last_exit_code" = process.last_exit.map(|exit| f64::from(exit.code)), "Exit code of the instance that ended last; 128 and the number of the signal if one has ended it";
                counter "hearth_process_cron_runs_total" = process.runs, "Runs that `cron` has started";
                counter "hearth_process_cron_overlaps_total" = process.overlaps, "Runs left out because the one before still went on";
            }
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        for process in &status.processes {
            let name = &process.name;
            if let Some(why) = &process.cannot_start {
                let text = format!("The process `{name}` cannot be started: {why}.");
                problems.add(Level::Error, text);
            } else if process.fails {
                let how = process.last_exit.as_ref().map_or("unknown", |exit| &exit.how);
                let text = format!(
                    "The process `{name}` ends soon after each start; the last time with {how}."
                );
                problems.add(Level::Error, text);
            }
        }
    }
}
