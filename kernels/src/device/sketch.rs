//! How many different digests there are, from the registers that `sketch.cuh` fills.

/// The estimate of HyperLogLog (Flajolet et al., 2007), with its correction for few. Each register has the highest rank, or
/// 0 if no digest came to it.
pub fn different(registers: &[u32]) -> f64 {
    let count = registers.len() as f64;
    let bias = 0.7213 / (1.0 + 1.079 / count);
    let sum: f64 = registers.iter().map(|rank| 0.5_f64.powi(*rank as i32)).sum();
    let estimate = bias * count * count / sum;
    let empty = registers.iter().filter(|rank| **rank == 0).count();
    if estimate <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { estimate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::murmur3::murmur3;

    #[test]
    fn the_estimate_is_right_to_a_tenth_for_few_and_for_many() {
        for count in [0_u32, 1, 100, 4_000, 10_000, 300_000] {
            let mut registers = [0_u32; 4096];
            for number in (0..count).chain(0..count / 2) {
                let digest = u128::from_le_bytes(murmur3(&number.to_le_bytes(), 0));
                let (first, second) = (digest as u64, (digest >> 64) as u64);
                let register = &mut registers[(second % 4096) as usize];
                *register = (*register).max(first.leading_zeros() + 1);
            }
            let error = (different(&registers) - f64::from(count)).abs();
            assert!(error <= f64::from(count) / 10.0, "{count}: {}", different(&registers));
        }
    }
}
