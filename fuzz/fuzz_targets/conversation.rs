//! Messages of two clients, line by line in turn. For any input, each answer is JSON with an event, and no state of the
//! clients stays when both are gone.
//!
//! A line may contain `SIGN`, which is replaced by a valid signature, so that more than refusals is tested.

#![no_main]

use std::sync::Arc;

use channels::json::{Kind, Raw};
use channels::{
    App, AppNumber, Channels, Delivery, FixedApps, Full, Hello, Limits, Moment, NoObserver, Out,
    Outlet, Records, Rights, Seat, Secret, Session, SocketId, auth,
};

#[derive(Debug)]
struct Nowhere;

impl Outlet for Nowhere {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), Full> {
        if let Delivery::Channel { message, .. } | Delivery::Seats { message, .. } = delivery {
            check(&message.text());
        }
        Ok(())
    }
}

fn check(text: &[u8]) {
    let message = Raw::from_bytes(text).expect("what is sent is JSON");
    assert_eq!(message.get("event").map(Raw::kind), Some(Kind::String));
}

/// Puts the signature in that the application would give.
fn signed(app: &App, socket: SocketId, line: &str) -> String {
    let Ok(message) = Raw::new(line) else { return line.to_owned() };
    let Some(data) = message.get("data") else { return line.to_owned() };
    let text = |name| data.get(name).and_then(Raw::string);
    let signature = match (text("user_data"), text("channel")) {
        (Some(user_data), _) => auth::sign_sign_in(app, socket, &user_data),
        (None, Some(channel)) => {
            auth::sign_subscription(app, socket, &channel, text("channel_data").as_deref())
        }
        (None, None) => return line.to_owned(),
    };
    line.replace("SIGN", &signature)
}

libfuzzer_sys::fuzz_target!(|input: &str| {
    let app = App {
        id: "1".into(),
        key: "key".into(),
        secret: Secret::new("secret"),
        rights: Rights { subscription_count: true, ..Rights::default() },
        limits: Limits::default(),
        history: None,
    };
    let apps = FixedApps::new([app]);
    let app = Arc::clone(&apps.all()[0]);
    let channels = Channels::new(Arc::new(apps), Arc::new(NoObserver));
    let event_loop = channels.attach(Arc::new(Nowhere)).expect("there is room for one");
    let now = Moment::default();
    let mut out = Out::default();
    let mut sessions: Vec<_> = (0..2)
        .filter_map(|slot| {
            let seat = Seat { event_loop, slot, generation: 0 };
            let hello = Hello { tls: false, origin: None, without_origin: false };
            let socket = SocketId::from_random(u64::from(slot));
            Session::open(Arc::clone(&app), seat, socket, &hello, &channels, now, &mut out)
        })
        .collect();
    for (turn, line) in input.lines().enumerate() {
        let Some(session) = sessions.get_mut(turn % 2) else { continue };
        out.clear();
        let socket = SocketId::from_random(turn as u64 % 2);
        session.text(&signed(&app, socket, line), &channels, now, &mut out);
        for frame in &out.frames {
            check(&frame.text());
        }
    }
    for session in sessions {
        session.closed(&channels, now);
    }
    assert_eq!(channels.records(), Records::default());
});
