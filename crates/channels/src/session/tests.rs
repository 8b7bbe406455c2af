mod channels;
mod client_events;
mod connection;
mod history;
mod presence;
mod simulation;
mod users;
