//! The extensions of an environment: registration, the events they wait for, and errors.
//!
//! Invariants
//! - At most ten extensions are registered, each under another name, and only while the runtime starts.
//! - An extension gets INVOKE and SHUTDOWN only if it registered for them.

use tokio::time::Instant;

use super::{Effect, Environment, ExtensionEvent, Phase, Refusal, Ticket};

/// Maximum number of extensions.
const MAX_EXTENSIONS: usize = 10;

/// A registered extension, and the events it has asked for.
#[derive(Clone, Debug)]
pub(super) struct Extension {
    name: String,
    pub(super) invoke: bool,
    shutdown: bool,
    pub(super) waiting: Option<Ticket>,
}

impl Extension {
    /// Returns whether the extension need not be awaited: one without INVOKE receives no invocations.
    pub(super) fn is_ready(&self) -> bool {
        !self.invoke || self.waiting.is_some()
    }
}

impl Environment {
    /// Handles `POST /extension/register` with the extension's name and events. A second registration under the
    /// same name is refused.
    pub(in crate::emulator) fn register(
        &mut self,
        id: String,
        name: &str,
        events: &[String],
    ) -> Result<(), Refusal> {
        let refuse = |kind, message: String| Err(Refusal::Extension { kind, message });
        let external = self.limits.external_extensions.iter().any(|known| known == name);
        for event in events {
            let why = match event.as_str() {
                "INVOKE" if !self.is_managed() => continue,
                "SHUTDOWN" if external => continue,
                "SHUTDOWN" => "ShutdownEventNotSupportedForInternalExtension",
                _ => "ErrorInvalidEventType",
            };
            return refuse("Extension.InvalidEventType", format!("{event}: {why}"));
        }
        if !matches!(self.phase, Phase::Starting | Phase::InitError) {
            let message = "Extension registration closed already".into();
            return refuse("Extension.RegistrationClosed", message);
        }
        if self.extensions.values().any(|known| known.name == name) {
            let message = "Extension with this name already registered".into();
            return refuse("Extension.InvalidExtensionState", message);
        }
        if self.extensions.len() >= MAX_EXTENSIONS {
            let message = format!("Extension limit ({MAX_EXTENSIONS}) reached");
            return refuse("Extension.TooManyExtensions", message);
        }
        let subscribed = |event: &str| events.iter().any(|known| known == event);
        let extension = Extension {
            name: name.into(),
            invoke: subscribed("INVOKE"),
            shutdown: subscribed("SHUTDOWN"),
            waiting: None,
        };
        self.extensions.insert(id, extension);
        Ok(())
    }

    /// Handles `GET /extension/event/next`.
    pub(in crate::emulator) fn extension_next(
        &mut self,
        now: Instant,
        id: &str,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let Some(extension) = self.extensions.get_mut(id) else {
            return Err(unknown_extension(id));
        };
        extension.waiting = Some(ticket);
        if self.phase == Phase::ShuttingDown {
            self.tell_shutdown();
        }
        self.settle(now);
        Ok(())
    }

    /// Handles `POST /extension/init/error` and `/extension/exit/error`: the extension is removed.
    pub(in crate::emulator) fn extension_error(
        &mut self,
        now: Instant,
        id: &str,
    ) -> Result<(), Refusal> {
        self.extensions.remove(id).ok_or_else(|| unknown_extension(id))?;
        self.settle(now);
        Ok(())
    }

    /// Sends the shutdown event to each extension that waits for it.
    pub(super) fn tell_shutdown(&mut self) {
        for extension in self.extensions.values_mut().filter(|extension| extension.shutdown) {
            if let Some(ticket) = extension.waiting.take() {
                self.effects.push(Effect::Tell { ticket, event: ExtensionEvent::Shutdown });
            }
        }
    }
}

fn unknown_extension(id: &str) -> Refusal {
    Refusal::Extension {
        kind: "Extension.UnknownExtensionIdentifier",
        message: format!("Unknown extension {id}"),
    }
}
