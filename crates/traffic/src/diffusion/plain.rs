//! A time step written down as the equation is: what the fast ones are compared with, in tests and where every
//! byte is to be compared.

use linerate_model::workload::Diffusion;

/// One time step from `old` to `new`, both of `side` x `side` cells; shorter ones are not changed.
pub fn step_plainly(old: &[f64], new: &mut [f64], side: usize) {
    if side < 1 || old.len() != side * side || new.len() != old.len() {
        return;
    }
    new.copy_from_slice(old);
    for row in 1..side - 1 {
        for column in 1..side - 1 {
            let at = row * side + column;
            let sum = old[at - 1] + old[at + 1] + old[at + side] + old[at - side] - 4.0 * old[at];
            new[at] = old[at] + Diffusion::FACTOR * sum;
        }
    }
}
