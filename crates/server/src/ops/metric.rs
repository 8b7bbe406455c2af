//! Prometheus metrics as tables: a line is a metric, its value and its description.

/// A label and its value.
pub(crate) type Label = (&'static str, String);

/// A value that a gauge can show.
pub(crate) trait Shown {
    fn shown(self) -> f64;
}

impl Shown for f64 {
    fn shown(self) -> f64 {
        self
    }
}

impl Shown for bool {
    fn shown(self) -> f64 {
        f64::from(u8::from(self))
    }
}

impl Shown for u64 {
    #[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
    fn shown(self) -> f64 {
        self as f64
    }
}

impl Shown for usize {
    fn shown(self) -> f64 {
        (self as u64).shown()
    }
}

/// A gauge cannot be taken back once it was set: unknown is `NaN`.
impl<T: Shown> Shown for Option<T> {
    fn shown(self) -> f64 {
        self.map_or(f64::NAN, T::shown)
    }
}

pub(crate) fn gauge(name: &'static str, text: &'static str, labels: &[Label], value: impl Shown) {
    metrics::describe_gauge!(name, text);
    metrics::gauge!(name, labels).set(value.shown());
}

/// `value` only grows.
pub(crate) fn counter(name: &'static str, text: &'static str, labels: &[Label], value: u64) {
    metrics::describe_counter!(name, text);
    metrics::counter!(name, labels).absolute(value);
}

/// Describes metrics and sets them, all with the same labels:
/// `metrics_table! { &labels; gauge "hearth_backlog" = status.backlog, "Requests waiting for a worker"; }`
macro_rules! metrics_table {
    ($labels:expr; $($kind:ident $name:literal = $value:expr, $text:literal;)+) => {{
        let labels: &[$crate::ops::metric::Label] = $labels;
        $($crate::ops::metric::$kind($name, $text, labels, $value);)+
    }};
}
pub(crate) use metrics_table;
