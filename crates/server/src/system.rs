pub(crate) mod guard;
pub(crate) mod machine;
pub(crate) mod paths;
pub(crate) mod places;
pub(crate) mod privileges;
pub(crate) mod run_dir;
pub(crate) mod sys;
pub(crate) mod users;
