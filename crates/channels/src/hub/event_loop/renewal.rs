//! Applications that change while their sockets are open, a few sockets in each turn.

use std::sync::Arc;

use super::super::connection::{Connection, Fate, Stage};
use super::super::figures::Reason;
use super::EventLoop;
use crate::app::App;
use crate::close::Close;

/// Slots looked at in a turn.
const SLOTS: usize = 1024;

/// An application that is another one now.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) id: Arc<str>,
    /// None: there is no such application any more.
    pub(super) app: Option<Arc<App>>,
    /// The next slot to look at. Whoever comes meanwhile knows the new one.
    pub(super) slot: u32,
}

impl EventLoop {
    /// Tells sockets of their application's change.
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
            // The key it came with is nobody's now.
            _ => Close::NO_SUCH_APP,
        };
        session.counters().closed_with_error.increase();
        self.refuse(connection, close, Reason::Refused);
    }
}
