//! A library in front of libibverbs, for tests: everything goes to the real one, over real devices, but a byte of
//! each third message is changed. What is sent or written is changed before it goes, what is read or fetched when
//! it has come. A data check that does not notice is none. With `LINERATE_SPOIL=key` it is the key of the remote end's
//! memory that is changed.
//!
//! A test has this crate among its `[dev-dependencies]`, and starts the program with `LINERATE_LIBIBVERBS` set to
//! [`library`].

mod sys;

use std::path::PathBuf;

/// The dynamic library that cargo built beside the test's program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a file");
    let folder = program.parent().expect("a file is in a folder");
    folder.join("liblinerate_verbs_spoil.so")
}
