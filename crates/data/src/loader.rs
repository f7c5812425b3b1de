//! Training batches in a seeded order.

use std::sync::Arc;

use crate::order::Shuffle;
use crate::packing::PackedRows;
use crate::prefetch::Prefetch;
use crate::{Batch, DataError, Mix, TokenSplit, WindowOrder, Windows};

/// Training batches. A batch depends only on the seed and the index of its first window.
#[derive(Clone)]
pub struct TrainBatches {
    sources: Arc<[MixSource]>,
    mix: Mix,
}

/// The windows of one dataset in a seeded order.
struct MixSource {
    windows: Windows,
    order: Order,
}

enum Order {
    /// The order of windows of continuous text.
    Stream(WindowOrder),
    /// The order of rows of whole documents.
    Rows(Shuffle, Arc<PackedRows>),
}

impl MixSource {
    fn new(windows: Windows, seed: u64) -> Result<Self, DataError> {
        let (tokens, seq_len) = (windows.split().len(), windows.seq_len() as u64);
        let order = match windows.rows() {
            None => Order::Stream(WindowOrder::new(seed, tokens, seq_len)?),
            Some(_) if tokens < 2 => return Err(DataError::TooShort { tokens, seq_len: 1 }),
            Some(rows) => Order::Rows(Shuffle::new(seed, rows.rows()), Arc::clone(rows)),
        };
        Ok(Self { windows, order })
    }

    fn windows_per_epoch(&self) -> u64 {
        match &self.order {
            Order::Stream(order) => order.windows_per_epoch(),
            Order::Rows(order, _) => order.count(),
        }
    }

    /// Appends the window at `index` in the order.
    fn push(&self, index: u64, batch: &mut Batch) -> Result<(), DataError> {
        let windows = &self.windows;
        match &self.order {
            Order::Stream(order) => windows.push_from(order.start(index), batch),
            Order::Rows(order, rows) => windows.push_row(rows, order.at(index), u64::MAX, batch),
        }
    }
}

impl TrainBatches {
    /// Batches of `windows` in the order of `seed`.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if there is not even one window.
    pub fn new(windows: Windows, seed: u64) -> Result<Self, DataError> {
        Self::mixed(vec![(windows, 1.0)], seed)
    }

    /// Batches of windows from several datasets with the same sequence length and packing. [`Mix`] decides which
    /// dataset each window comes from. Within a dataset the windows are in seeded order, each once per epoch of that
    /// dataset.
    ///
    /// # Errors
    /// As [`TrainBatches::new`] and [`Mix::new`]. [`DataError::Value`] if sequence lengths or packings differ.
    pub fn mixed(datasets: Vec<(Windows, f64)>, seed: u64) -> Result<Self, DataError> {
        let weights: Vec<f64> = datasets.iter().map(|(_, weight)| *weight).collect();
        let mix = Mix::new(&weights)?;
        let mut sources: Vec<MixSource> = Vec::new();
        for (windows, _) in datasets {
            // The first dataset keeps the order that it has without a mix.
            let seed = seed.wrapping_add((sources.len() as u64) << 32);
            let before = sources.first().map(|source| &source.windows);
            check_compatible(before.unwrap_or(&windows), &windows)?;
            sources.push(MixSource::new(windows, seed)?);
        }
        let sources = sources.into();
        Ok(Self { sources, mix })
    }

    /// The same batches with the mix that `change` returns for theirs, such as [`Mix::with_weights_from`].
    ///
    /// # Errors
    /// Those of `change`. [`DataError::Value`] if the mix has another number of datasets.
    pub fn with_mix(
        mut self,
        change: impl FnOnce(Mix) -> Result<Mix, DataError>,
    ) -> Result<Self, DataError> {
        self.mix = change(self.mix)?;
        let datasets = self.mix.datasets();
        match datasets == self.sources.len() {
            true => Ok(self),
            false => Err(DataError::Value {
                field: "mix",
                value: format!("one of {datasets} datasets"),
                rule: "must be one of the datasets of the batches",
            }),
        }
    }

    /// The number of positions in a window.
    pub fn seq_len(&self) -> usize {
        self.sources[0].windows.seq_len()
    }

    /// The splits of the datasets.
    pub fn splits(&self) -> impl Iterator<Item = &TokenSplit> {
        self.sources.iter().map(|source| source.windows.split())
    }

    /// The mix of the datasets.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// The number of windows in an epoch of a dataset.
    pub fn windows_per_epoch(&self, dataset: usize) -> u64 {
        self.sources[dataset].windows_per_epoch()
    }

    /// The batch of the `micro_batch` windows from `first_window_index`, which counts windows since the start of the
    /// run and continues across epochs.
    ///
    /// # Errors
    /// Fails if the tokens cannot be read. [`DataError::Value`] if `micro_batch` is 0.
    pub fn batch(&self, first_window_index: u64, micro_batch: usize) -> Result<Batch, DataError> {
        if micro_batch == 0 {
            return Err(DataError::Value {
                field: "micro_batch",
                value: "0".to_owned(),
                rule: "must be at least 1",
            });
        }
        let windows = &self.sources[0].windows;
        let mut batch = windows.empty_batch(windows.seq_len() as u64);
        for i in 0..micro_batch as u64 {
            let (dataset, own) = self.mix.locate(first_window_index.wrapping_add(i));
            self.sources[dataset].push(own, &mut batch)?;
        }
        Ok(batch)
    }

    /// An endless iterator over batches of `micro_batch` windows. The first batch begins at `first_window_index`, and
    /// each batch begins `stride` windows after the previous one; a `stride` of `micro_batch` uses every window. The
    /// batches are prefetched by `workers` threads, which end with the iterator, or computed on demand if `workers`
    /// is 0. They do not depend on the number of threads.
    pub fn ahead(
        &self,
        first_window_index: u64,
        micro_batch: usize,
        stride: usize,
        workers: usize,
    ) -> impl Iterator<Item = Result<Batch, DataError>> + use<> {
        let this = self.clone();
        Prefetch::new(workers, move |at| {
            let windows = at.wrapping_mul(stride as u64);
            this.batch(first_window_index.wrapping_add(windows), micro_batch)
        })
    }
}

fn check_compatible(first: &Windows, other: &Windows) -> Result<(), DataError> {
    let wrong = |field, value: String| {
        let rule = "must be the same for all datasets of a mix";
        Err(DataError::Value { field, value, rule })
    };
    if first.seq_len() != other.seq_len() {
        return wrong("seq_len", other.seq_len().to_string());
    }
    if first.packing() != other.packing() {
        return wrong("packing", other.packing().to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::dataset::tests::{masked_split, split_of};
    use crate::evaluation::tests::counting;
    use crate::{Packing, TokenSplit};

    /// The tokens `from..to` in two shards.
    fn range(from: u32, to: u32) -> TokenSplit {
        let ids: Vec<u32> = (from..to).collect();
        let first = ids.len() / 3;
        split_of(&ids, &[first, ids.len() - first], 70_000)
    }

    fn stream(split: TokenSplit, seed: u64, seq_len: usize) -> TrainBatches {
        TrainBatches::new(Windows::stream(split, seq_len).unwrap(), seed).unwrap()
    }

    #[test]
    fn training_batch_concatenates_its_windows() {
        let batches = stream(counting(1000), 5, 8);
        let order = WindowOrder::new(5, 1000, 8).unwrap();
        let batch = batches.batch(40, 3).unwrap();
        assert_eq!((batch.batch, batch.seq, batch.learnt()), (3, 8, 24));
        for (row, index) in (40..43).enumerate() {
            let start = order.start(index) as u32;
            let inputs: Vec<u32> = (start..start + 8).collect();
            let targets: Vec<u32> = (start + 1..start + 9).collect();
            assert_eq!(batch.inputs[row * 8..][..8], inputs);
            assert_eq!(batch.targets[row * 8..][..8], targets);
        }
    }

    #[test]
    fn micro_batches_concatenate_to_the_large_batch() {
        let batches = stream(counting(1000), 5, 8);
        let whole = batches.batch(6, 6).unwrap();
        let [a, b] = [6, 9].map(|first| batches.batch(first, 3).unwrap());
        assert_eq!([a.inputs, b.inputs].concat(), whole.inputs);
        assert_eq!(batches.batch(6, 6).unwrap(), whole);
    }

    #[test]
    fn zero_values_are_rejected() {
        let named = |result: Result<(), DataError>| result.unwrap_err().to_string();
        let train = stream(counting(100), 0, 8);
        assert!(named(train.batch(0, 0).map(drop)).contains("`micro_batch` is 0"));
        let empty = Windows::stream(counting(100), 0);
        assert!(named(empty.map(drop)).contains("`seq_len` is 0"));
        let one = Windows::isolated(counting(1), 8, 0).unwrap();
        let result = TrainBatches::new(one, 0).map(drop);
        assert!(named(result).contains("needs 2 tokens, but the split has 1"));
        let [a, b] = [8, 9].map(|seq_len| Windows::stream(counting(100), seq_len).unwrap());
        let c = Windows::isolated(counting(100), 8, 0).unwrap();
        let mixed = |one: &Windows, other: &Windows| {
            let both = vec![(one.clone(), 1.0), (other.clone(), 1.0)];
            named(TrainBatches::mixed(both, 0).map(drop))
        };
        assert!(mixed(&a, &b).contains("`seq_len` is 9: must be the same"));
        assert!(mixed(&a, &c).contains("`packing` is isolated: must be the same"));
    }

    /// The inputs of `count` windows from index `first`.
    fn windows(batches: &TrainBatches, first: u64, count: u64) -> Vec<Vec<u32>> {
        let made = batches.ahead(first, 1, 1, 1).take(count as usize);
        made.map(|batch| batch.unwrap().inputs).collect()
    }

    #[test]
    fn mix_has_each_window_once_per_epoch_of_its_dataset() {
        let splits = [range(0, 400), range(1000, 1700), range(2000, 2090)];
        let weights = [0.5, 0.3, 0.2];
        let mixed = splits.iter().zip(weights);
        let mixed =
            mixed.map(|(split, weight)| (Windows::stream(split.clone(), 8).unwrap(), weight));
        let batches = TrainBatches::mixed(mixed.collect(), 3).unwrap();
        // The first dataset has the same order without the mix.
        let unmixed = stream(splits[0].clone(), 3, 8);
        let all = windows(&batches, 0, 1000);
        let of = |from: u32| {
            let own = move |window: &&Vec<u32>| window[0] / 1000 * 1000 == from;
            all.iter().filter(own).cloned().collect::<Vec<_>>()
        };
        assert_eq!(of(0), windows(&unmixed, 0, 500));
        for (dataset, (from, count)) in [(0, 500), (1000, 300), (2000, 200)].into_iter().enumerate()
        {
            let own = of(from);
            assert_eq!(own.len(), count);
            let epoch = batches.windows_per_epoch(dataset) as usize;
            for whole in own.chunks_exact(epoch) {
                let mut starts: Vec<u32> = whole.iter().map(|window| window[0]).collect();
                starts.sort();
                assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 8));
            }
        }
        // Starting at any index gives the same order.
        assert_eq!(windows(&batches, 321, 100), all[321..421]);
    }

    /// Documents of the given lengths, with consecutive token ids.
    fn documents(lengths: impl Iterator<Item = usize>) -> TokenSplit {
        let mut ids = Vec::new();
        for len in lengths {
            let next = ids.len() as u32;
            ids.push(0);
            ids.extend((1..len as u32).map(|i| next + i));
        }
        let first = ids.len() / 2;
        split_of(&ids, &[first, ids.len() - first], 70_000)
    }

    #[test]
    fn epoch_of_isolated_documents_has_every_row_once() {
        let split = documents((0..200).map(|i| 1 + i * 7 % 40));
        let in_order = Windows::isolated(split.clone(), 16, 0).unwrap();
        let best_fit = Windows::best_fit(split.clone(), 16, 0).unwrap();
        let padding = |windows: &Windows| windows.packed().unwrap().padding;
        assert!(padding(&best_fit) < 0.5 * padding(&in_order));
        for windows in [in_order, best_fit] {
            check_epochs(&split, windows);
        }
    }

    /// Checks that two epochs predict every token of the split except the first, in different orders.
    fn check_epochs(split: &TokenSplit, windows: Windows) {
        let batches = TrainBatches::new(windows, 9).unwrap();
        let rows = batches.windows_per_epoch(0);
        let mut epochs = Vec::new();
        for epoch in 0..2 {
            let made = batches.ahead(epoch * rows, 1, 1, 2).take(rows as usize);
            let mut targets = BTreeMap::new();
            let mut order = Vec::new();
            for batch in made {
                let batch = batch.unwrap();
                order.push(batch.inputs.clone());
                let documents = batch.documents.as_ref().unwrap();
                for (at, &begin) in documents.iter().enumerate() {
                    // A document begins with 0, a part of a longer one with the row or the piece.
                    assert!(begin as usize <= at && documents[begin as usize] == begin);
                    let is_padding = batch.targets[at] == crate::IGNORED;
                    assert!(batch.inputs[at] != 0 || begin as usize == at || is_padding);
                }
                for &target in batch.targets.iter().filter(|&&t| t != crate::IGNORED) {
                    *targets.entry(target).or_insert(0) += 1;
                }
            }
            let ids = split.read(0, split.len()).unwrap();
            let mut expected = BTreeMap::new();
            for &id in &ids[1..] {
                *expected.entry(id).or_insert(0) += 1;
            }
            assert_eq!(targets, expected);
            epochs.push(order);
        }
        assert_ne!(epochs[0], epochs[1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn batches_do_not_depend_on_the_number_of_workers(
            seed: u64, first in 0u64..10_000, micro_batch in 1usize..5, packing in 0usize..3, workers in 1usize..5,
            ranks in 1usize..4,
        ) {
            let of = |split: TokenSplit| match Packing::ALL[packing] {
                Packing::Stream => Windows::stream(split, 8).unwrap(),
                Packing::Isolated => Windows::isolated(split, 8, 0).unwrap(),
                Packing::BestFit => Windows::best_fit(split, 8, 0).unwrap(),
            };
            let masked: Vec<u32> = (0..300).map(|i| if i % 13 == 0 { 0 } else { i }).collect();
            let learnt: Vec<bool> = (0..300).map(|i| i % 3 > 0).collect();
            let splits = vec![
                (of(documents((0..40).map(|i| 1 + i * 5 % 30))), 0.7),
                (of(masked_split(&masked, &learnt, 100)), 0.3),
            ];
            let batches = TrainBatches::mixed(splits, seed).unwrap();
            let batches = batches.with_mix(|mix| mix.with_weights_from(first + 7, &[0.2, 0.8]));
            let batches = batches.unwrap();
            let stride = ranks * micro_batch;
            let made = |workers| -> Vec<Batch> {
                let made = batches.ahead(first, micro_batch, stride, workers).take(20);
                made.map(Result::unwrap).collect()
            };
            let inline = made(0);
            prop_assert_eq!(&made(workers), &inline);
            let at = |i: u64| batches.batch(first + i * stride as u64, micro_batch).unwrap();
            prop_assert_eq!((0..20).map(at).collect::<Vec<_>>(), inline);
        }
    }

    #[test]
    fn prefetched_errors_keep_their_position() {
        let mut ids: Vec<u32> = (0..100).collect();
        ids[40] = 80_000;
        let batches = stream(split_of(&ids, &[100], 70_001), 0, 8);
        let good = |batch: Result<Batch, DataError>| batch.is_ok();
        let inline: Vec<bool> = batches.ahead(0, 1, 1, 0).take(30).map(good).collect();
        let ahead: Vec<bool> = batches.ahead(0, 1, 1, 3).take(30).map(good).collect();
        assert_eq!(inline, ahead);
        assert!(inline.contains(&false) && inline.contains(&true));
    }
}
