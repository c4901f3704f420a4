//! Random data from the kernel's generator: unguessable tokens, and seeds.

use linerate_model::exit::{Outcome, Stop};
use linerate_model::protocol::Token;

/// An unguessable token, from the kernel's generator.
pub fn fresh_token() -> Outcome<Token> {
    let mut token = [0u8; 16];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Stop::io("draw a random token", errno.into()))?;
    Ok(Token(token))
}

/// A seed from the kernel's generator, short enough to type.
pub fn fresh_seed() -> Outcome<u64> {
    let token = fresh_token()?;
    Ok(u64::from(u32::from_le_bytes([
        token.0[0], token.0[1], token.0[2], token.0[3],
    ])))
}
