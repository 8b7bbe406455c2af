//! The other side of the Runtime API, for local work: plays it to a bootstrap, and turns HTTP requests into the events of API Gateway,
//! of a Function URL and of an Application Load Balancer.
