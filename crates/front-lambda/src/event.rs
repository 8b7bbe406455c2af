//! Shapes of events: which one this is, the request that it stands for, and the reply that its sender expects.
