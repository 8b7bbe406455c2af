//! Delta debugging (Zeller and Hildebrandt, 2002): the smallest part of a sequence that still causes something.

/// Returns a part of `items`, in their order, for which `causes` holds and from which no single item can be left out. `causes` has held for
/// all of `items`. At most `most` parts are tried; the result may then be larger than needed.
pub(super) async fn minimise<T: Clone>(
    items: Vec<T>,
    mut most: usize,
    mut causes: impl AsyncFnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut rest = items;
    let mut parts = 2;
    while rest.len() > 1 {
        let size = rest.len().div_ceil(parts);
        let chunks: Vec<Vec<T>> = rest.chunks(size).map(<[T]>::to_vec).collect();
        // The later ones first: what is nearest to the effect is its likeliest cause.
        let mut smaller = None;
        for number in (0..chunks.len()).rev() {
            if most == 0 {
                return rest;
            }
            most -= 1;
            let chunk = chunks.get(number).map_or(&[][..], Vec::as_slice);
            if causes(chunk).await {
                smaller = Some((chunk.to_vec(), 2));
                break;
            }
        }
        if smaller.is_none() && chunks.len() > 2 {
            for left_out in 0..chunks.len() {
                if most == 0 {
                    return rest;
                }
                most -= 1;
                let others = chunks.iter().enumerate().filter(|(number, _)| *number != left_out);
                let others: Vec<T> = others.flat_map(|(_, chunk)| chunk.clone()).collect();
                if causes(&others).await {
                    smaller = Some((others, (chunks.len() - 1).max(2)));
                    break;
                }
            }
        }
        match smaller {
            Some((part, next)) => (rest, parts) = (part, next),
            None if size == 1 => return rest,
            None => parts = (parts * 2).min(rest.len()),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn minimal(count: u32, wanted: &[u32]) -> (Vec<u32>, usize) {
        let mut tried = 0;
        let items: Vec<u32> = (0..count).collect();
        let found = minimise(items, 10_000, async |part: &[u32]| {
            tried += 1;
            wanted.iter().all(|one| part.contains(one))
        })
        .await;
        (found, tried)
    }

    #[tokio::test]
    async fn one_two_or_three_causes_are_found_among_many() {
        for cause in [0, 1, 499, 512, 998, 999] {
            let (found, tried) = minimal(1000, &[cause]).await;
            assert_eq!(found, [cause]);
            assert!(tried <= 22, "{tried} tries");
        }
        assert_eq!(minimal(200, &[3, 150]).await.0, [3, 150]);
        assert_eq!(minimal(200, &[0, 100, 199]).await.0, [0, 100, 199]);
        assert_eq!(minimal(1, &[0]).await.0, [0]);
        assert_eq!(minimal(7, &[0, 1, 2, 3, 4, 5, 6]).await.0.len(), 7);
    }

    #[tokio::test]
    async fn the_number_of_tries_is_bounded() {
        let mut tried = 0;
        let items: Vec<u32> = (0..100).collect();
        let found = minimise(items, 5, async |part: &[u32]| {
            tried += 1;
            part.contains(&3) && part.contains(&90)
        })
        .await;
        assert_eq!(tried, 5);
        assert!(found.contains(&3) && found.contains(&90), "what is left still causes it");
    }
}
