//! The settings that each command offers as flags.

use crate::config::Key;

/// The settings that are flags where an application is served. Those of the broker are flags where it is alone.
pub(super) fn of_application(key: &Key) -> bool {
    !matches!(key.section_and_key().0, "egress" | "lambda" | "emulator")
}

/// The settings that are flags where an application is verified: those of PHP, but for the model and the number of workers.
pub(super) fn of_verify(key: &Key) -> bool {
    let (section, name) = key.section_and_key();
    let of_php =
        section == "php" && !matches!(name, "model" | "workers" | "workers_max" | "max_requests");
    of_php || ["http.document_root", "http.front_controller"].contains(&key.name)
}

/// The settings by which a command finds a running server.
pub(super) fn of_control(key: &Key) -> bool {
    key.name == "server.run_dir"
}

/// The settings that are flags where events are served.
pub(super) fn of_lambda(key: &Key) -> bool {
    matches!(key.section_and_key().0, "lambda" | "emulator" | "php" | "log" | "admin")
}

/// The settings that are flags where the broker is alone.
pub(super) fn of_egress(key: &Key) -> bool {
    matches!(key.section_and_key().0, "egress" | "log" | "admin")
}

/// Returns whether a setting is a flag of `hearth channels`: settings of realtime, and those of every port.
pub(super) fn of_channels(key: &Key) -> bool {
    matches!(key.section_and_key().0, "realtime" | "log" | "admin")
        || ["http.listen", "http.tls_cert", "http.tls_key"].contains(&key.name)
}
