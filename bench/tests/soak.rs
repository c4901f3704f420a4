//! A short run of `bench/soak`, so that the long one is known to work.

#![expect(
    clippy::print_stderr,
    reason = "a test that cannot run says so where the runner counts it"
)]

use std::path::Path;
use std::process::{Command, Output};

fn soak(folder: &Path, linerate: &Path, trials: &str) -> Output {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_linerate-bench-soak"));
    soak.arg("--out")
        .arg(folder)
        .args(["--minutes", "0", "--seed", "7", "--trials", trials]);
    soak.arg("--linerate").arg(linerate);
    soak.output().expect("it was built")
}

#[test]
fn a_soak_of_a_few_trials_finds_no_growth_and_is_continued_where_it_ended() {
    let linerate = Path::new(env!("CARGO_BIN_EXE_linerate-bench-soak")).with_file_name("linerate");
    if !linerate.exists() {
        eprintln!("SKIP: linerate was not built beside the benchmarks");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for trials in ["30", "60"] {
        let done = soak(folder.path(), &linerate, trials);
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (said(&done.stdout), said(&done.stderr));
        if err.contains("network namespace") || err.contains("unshare") {
            eprintln!("SKIP: two hosts cannot be made here: {err}");
            return;
        }
        assert!(done.status.success(), "{out}{err}");
        assert!(out.starts_with(&format!("{trials} trials in")), "{out}");
    }
}
