//! Updates open sockets after an application changed, a few sockets in each turn.

use std::sync::Arc;

use super::super::connection::{Connection, Fate, Stage};
use super::super::figures::Reason;
use super::EventLoop;
use crate::app::App;
use crate::close::Close;

/// Maximum number of slots checked per turn.
const SLOTS: usize = 1024;

/// A changed application.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) id: Arc<str>,
    /// The new application; `None` if it was removed.
    pub(super) app: Option<Arc<App>>,
    /// The next slot to check. Sockets opened in the meantime use the new application already.
    pub(super) slot: u32,
}

impl EventLoop {
    /// Updates sockets of changed applications.
    pub(super) fn renew(&mut self) {
        let mut budget = SLOTS;
        while budget > 0 {
            let Some(mut renewal) = self.renewals.pop_front() else { return };
            while budget > 0 && renewal.slot < self.seats.slots() {
                if let Some(seat) = self.seats.seat_at(renewal.slot) {
                    self.with(seat, |this, _, connection| {
                        this.renew_one(connection, &renewal);
                        Fate::Stays
                    });
                }
                renewal.slot += 1;
                budget -= 1;
            }
            if renewal.slot < self.seats.slots() {
                self.renewals.push_front(renewal);
            }
        }
    }

    fn renew_one(&mut self, connection: &mut Connection, renewal: &Renewal) {
        let Stage::Open(session) = &mut connection.stage else { return };
        if session.app().id != renewal.id {
            return;
        }
        let close = match &renewal.app {
            Some(app) if app.key == session.app().key && app.rights.enabled => {
                session.renew(Arc::clone(app));
                return connection.limit(&app.limits);
            }
            Some(app) if app.key == session.app().key => Close::APP_DISABLED,
            // No application has the key with which the client connected.
            _ => Close::NO_SUCH_APP,
        };
        session.counters().closed_with_error.increase();
        self.refuse(connection, close, Reason::Refused);
    }
}
