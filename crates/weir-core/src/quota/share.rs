//! Max-min fairness.

use std::cmp::Reverse;

/// Divides `amount` among these demands: no share exceeds its demand, and none is smaller than another while its
/// demand is not met. The remainder of an uneven division goes to the largest demands, of equal ones to the first.
pub fn max_min(amount: u64, demands: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_unstable_by_key(|index| (demands[*index], Reverse(*index)));
    let (mut left, mut shares) = (amount, vec![0; demands.len()]);
    for (position, index) in order.iter().enumerate() {
        let others = (demands.len() - position) as u64;
        shares[*index] = demands[*index].min(left / others);
        left -= shares[*index];
    }
    shares
}

/// Like [`max_min`], but hands out all of `amount`: the rest beyond the demands is spread evenly.
pub(super) fn max_min_with_surplus(amount: u64, demands: &[u64]) -> Vec<u64> {
    let mut shares = max_min(amount, demands);
    let mut spare = amount - shares.iter().sum::<u64>();
    for position in 0..shares.len() {
        let more = spare.div_ceil((shares.len() - position) as u64);
        shares[position] += more;
        spare -= more;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_demands_are_met_and_large_ones_are_equal() {
        for (amount, demands, shares) in [
            (1_000, &[1_080, 60, 60][..], &[880, 60, 60][..]),
            (100, &[500, 500], &[50, 50]),
            (100, &[20, 30], &[20, 30]),
            (7, &[9, 9], &[4, 3]),
            (1, &[5, 5, 5], &[1, 0, 0]),
            (2, &[1, 9, 1], &[1, 1, 0]),
            (5, &[], &[]),
        ] {
            assert_eq!(max_min(amount, demands), shares);
        }
    }

    proptest! {
        #[test]
        fn shares_are_max_min_fair(
            amount in 0..10_000_u64,
            demands in prop::collection::vec(0..5_000_u64, 0..20),
        ) {
            let shares = max_min(amount, &demands);
            prop_assert_eq!(shares.iter().sum::<u64>(), amount.min(demands.iter().sum()));
            let max = shares.iter().copied().max().unwrap_or(0);
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(share <= demand);
                prop_assert!(share == demand || share + 1 >= max, "{} of {} beside {}", share, demand, max);
            }
        }
    }
}
