pub(crate) mod run_dir;
pub(crate) mod sys;
