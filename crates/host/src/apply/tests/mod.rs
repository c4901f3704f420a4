//! The guarantees of a transaction: on a simulated machine under every planned fault, and on the real kernel under
//! SIGKILL.

mod interfaces;
mod kept;
mod killed;
mod order;
mod property;
mod strangers;
#[expect(
    unsafe_code,
    reason = "the child process enters a namespace before exec"
)]
mod sys;
