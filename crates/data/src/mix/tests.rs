use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn shares_are_exact_at_any_index_and_windows_ordered(
        weights in prop::collection::vec(0.01f64..10.0, 1..9), steps in 1u64..3000,
    ) {
        let mix = Mix::new(&weights).unwrap();
        let total: f64 = weights.iter().sum();
        let levels = weights.len().next_power_of_two().ilog2();
        let mut counts = vec![0u64; weights.len()];
        for index in 0..steps {
            let (dataset, own) = mix.locate(index);
            prop_assert_eq!(own, counts[dataset]);
            counts[dataset] += 1;
            for (&count, weight) in counts.iter().zip(&weights) {
                let quota = weight / total * (index + 1) as f64;
                let off = (count as f64 - quota).abs();
                prop_assert!(off <= 0.5 * f64::from(levels) + 1e-6, "{count}, not {quota}");
            }
        }
    }
}

proptest! {
    #[test]
    fn shares_of_each_stage_are_exact_and_datasets_continue(
        stages in prop::collection::vec((0u64..400, prop::collection::vec(0u32..5, 5)), 0..5),
    ) {
        let mut mix = Mix::new(&[1.0, 0.0, 3.0, 0.0, 0.0]).unwrap();
        let mut begins = vec![(0, vec![1.0, 0.0, 3.0, 0.0, 0.0])];
        let mut begin = 0;
        for (length, weights) in stages {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            if weights.iter().sum::<f64>() == 0.0 {
                continue;
            }
            begin += length;
            mix = mix.with_weights_from(begin, &weights).unwrap();
            begins.retain(|(other, _)| *other < begin);
            begins.push((begin, weights));
        }
        let mut counts = vec![0; 5];
        let mut before = counts.clone();
        for index in 0..begin + 100 {
            let (begin, weights) = begins.iter().rfind(|(begin, _)| *begin <= index).unwrap();
            if index == *begin {
                before = counts.clone();
            }
            let (dataset, own) = mix.locate(index);
            prop_assert_eq!(own, counts[dataset]);
            counts[dataset] += 1;
            prop_assert_eq!(&mix.counts(index + 1), &counts);
            for (dataset, weight) in weights.iter().enumerate() {
                let share = weight / weights.iter().sum::<f64>();
                prop_assert!((mix.share(dataset, index) - share).abs() < 1e-12);
                let found = (counts[dataset] - before[dataset]) as f64;
                let off = (found - share * (index + 1 - begin) as f64).abs();
                prop_assert!(off <= 1.5 + 1e-6 && (share > 0.0 || found == 0.0));
            }
        }
    }
}

proptest! {
    #[test]
    fn continued_stages_follow_the_sum_of_the_shares(
        lengths in prop::collection::vec(0u64..9, 1..60),
        ends in prop::collection::vec((0u32..4, 0u32..4), 2..6),
    ) {
        let weights = |at: f64| -> Vec<f64> {
            let at = |&(from, to): &(u32, u32)| f64::from(from) * (1.0 - at) + f64::from(to) * at;
            ends.iter().map(at).collect()
        };
        prop_assume!([0.0, 1.0].iter().all(|&at| weights(at).iter().sum::<f64>() > 0.0));
        let datasets = ends.len();
        let mut mix = Mix::new(&vec![1.0; datasets]).unwrap();
        let (start, mut begin) = (lengths[0], lengths[0]);
        mix = mix.with_weights_from(begin, &weights(0.0)).unwrap();
        for (step, length) in lengths.iter().enumerate() {
            begin += length;
            let at = (step + 1) as f64 / lengths.len() as f64;
            mix = mix.with_weights_continued_from(begin, &weights(at)).unwrap();
        }
        // Half a window for two datasets. Further levels also move with the rounding of the one above.
        let bound = [0.5, 0.5, 1.5, 1.5, 3.5][datasets - 1] + 1e-6;
        let before = mix.counts(start);
        let mut totals = vec![0.0; datasets];
        let mut counts = vec![0u64; datasets];
        for index in 0..begin + 30 {
            let (dataset, own) = mix.locate(index);
            prop_assert_eq!(own, counts[dataset]);
            prop_assert!(mix.share(dataset, index) > 0.0);
            counts[dataset] += 1;
            prop_assert_eq!(&mix.counts(index + 1), &counts);
            if index < start {
                continue;
            }
            for (dataset, total) in totals.iter_mut().enumerate() {
                *total += mix.share(dataset, index);
                let off = ((counts[dataset] - before[dataset]) as f64 - *total).abs();
                prop_assert!(off <= bound, "{off} of {datasets} at {index}");
            }
        }
    }
}

#[test]
fn a_continued_stage_keeps_the_fraction() {
    let thirds = Mix::new(&[1.0, 2.0]).unwrap();
    let continued = |mix: Mix, begin| mix.with_weights_continued_from(begin, &[1.0, 2.0]);
    // The same weights in stages of one window divide as one stage does.
    let stages = (1..20).try_fold(thirds.clone(), continued).unwrap();
    let of = |mix: &Mix| (0..40).map(|at| mix.locate(at)).collect::<Vec<_>>();
    assert_eq!(of(&stages), of(&thirds));
    // Without the fraction, the first dataset has no window.
    let begun = |mix: Mix, begin| mix.with_weights_from(begin, &[1.0, 2.0]);
    let stages = (1..20).try_fold(thirds, begun).unwrap();
    assert_eq!(stages.counts(20), [0, 20]);
    // The fraction 0 before a stage with one dataset.
    let mix = Mix::new(&[1.0, 1.0]).unwrap();
    let mix = mix.with_weights_continued_from(1, &[1.0, 0.0]).unwrap();
    assert_eq!(mix.counts(9), [9, 0]);
}

#[test]
fn weights_change_at_a_window() {
    let mix = Mix::new(&[3.0, 1.0]).unwrap();
    let mix = mix.with_weights_from(8, &[1.0, 1.0]).unwrap();
    let mix = mix.with_weights_from(12, &[0.0, 1.0]).unwrap();
    let datasets: Vec<usize> = (0..15).map(|i| mix.locate(i).0).collect();
    assert_eq!(datasets, [0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1]);
    assert_eq!((mix.locate(8), mix.locate(14)), ((0, 6), (1, 6)));
    assert_eq!(
        [8, 12, 20].map(|windows| mix.counts(windows)),
        [[6, 2], [8, 4], [8, 12]]
    );
}

#[test]
fn weights_of_three_and_one() {
    let mix = Mix::new(&[3.0, 1.0]).unwrap();
    // floor(0.75 i + 0.5) for i = 0 … 8: 0 1 2 2 3 4 5 5 6.
    let datasets: Vec<usize> = (0..8).map(|i| mix.locate(i).0).collect();
    assert_eq!(datasets, [0, 0, 1, 0, 0, 0, 1, 0]);
    assert_eq!(mix.locate(7), (0, 5));
    assert_eq!([0, 1].map(|of| mix.share(of, 0)), [0.75, 0.25]);
    // Exact for runs of any length.
    let long = 1u64 << 62;
    assert_eq!(mix.locate(long), (0, long / 4 * 3));
}

#[test]
fn single_dataset_has_all_windows() {
    let mix = Mix::new(&[0.2]).unwrap();
    assert_eq!((mix.share(0, 0), mix.locate(12_345)), (1.0, (0, 12_345)));
}

#[test]
fn invalid_weights_are_rejected() {
    let message = |weights: &[f64]| Mix::new(weights).unwrap_err().to_string();
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        let expected = format!("`weight` is {weight}: must be at least 0 and finite");
        assert_eq!(message(&[1.0, weight]), expected);
    }
    assert!(message(&[f64::MAX, f64::MAX]).contains("at least 0 and finite"));
    assert!(message(&[]).contains("at least one dataset"));
    let expected = "`weights` is [0.0, 0.0]: must have a weight above 0";
    assert_eq!(message(&[0.0, 0.0]), expected);
    let mix = Mix::new(&[1.0, 2.0]).unwrap();
    let mix = mix.with_weights_from(8, &[2.0, 1.0]).unwrap();
    let message = |begin, weights: &[f64]| {
        let changed = mix.clone().with_weights_from(begin, weights);
        changed.unwrap_err().to_string()
    };
    let expected = "`weights` is [1.0]: must be one per dataset";
    assert_eq!(message(9, &[1.0]), expected);
    let expected = "`begin` is 7: must be at or after the window of the change before";
    assert_eq!(message(7, &[1.0, 1.0]), expected);
}
