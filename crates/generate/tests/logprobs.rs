//! Log-probabilities of a model's own distribution.

use emberlm_generate::LogProbs;

#[test]
fn likeliest_matches_a_full_sort_with_bounded_capacity() {
    let logits: Vec<f32> = (0..5000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 64.0 - 20.0)
        .collect();
    let logprobs = LogProbs::new(&logits);
    let mut sorted: Vec<u32> = (0..5000).collect();
    // A stable sort: ties keep the lower id first.
    sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    for count in [0, 1, 5, 20, 4999, 5000, 9000] {
        let found = logprobs.likeliest(count);
        let ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, sorted[..count.min(5000)]);
        assert!(found.capacity() <= count.min(5000));
        assert!(found.iter().all(|&(id, p)| logprobs.of(id) == Some(p)));
    }
}
