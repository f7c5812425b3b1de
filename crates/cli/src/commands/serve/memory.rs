//! The memory of the served models.

use std::sync::Arc;

use bytesize::ByteSize;
use emberlm_checkpoint::{Embedder, Model, ModelKind};
use emberlm_kernels::Backend;
use emberlm_serve::{LoadPlan, Place, Residency};
use emberlm_trainer::fit::InferenceWork;

use super::load::Plan;
use super::models::ModelSpec;
use crate::error::CliError;
use crate::memory_guard::{MemoryGuard, Work};
use crate::model;

/// The works of each engine, by the model that stands for those that it runs: that of the model, and of its draft model.
pub fn works<'a, B: Backend>(planned: &[(&ModelSpec, &Plan<'a>)]) -> Vec<Vec<Work<'a>>> {
    let generation = |spec: &ModelSpec, plan: &LoadPlan<'_>, model: &Model| {
        let engine = plan.engine();
        InferenceWork::generation(
            model::inference_weights(model, spec.weights, B::keeps_packed_weights()),
            engine.slots,
            engine.capacity,
            engine.prefill_tokens,
        )
        .with_cache(plan.options().cache)
    };
    let works = planned.iter().map(|(spec, plan)| match plan {
        Plan::Generator(plan) if plan.model().kind() == ModelKind::EncoderDecoder => {
            let engine = plan.engine();
            let work = InferenceWork::targets(engine.slots, engine.capacity, engine.capacity);
            vec![(plan.model().config(), work)]
        }
        Plan::Generator(plan) => {
            let model = plan.model();
            let logit_rows = plan.engine().prompt_logit_rows(model.config().vocab_size());
            let work = generation(spec, plan, model).with_more_logits(logit_rows);
            let draft = plan.draft();
            let draft = draft.map(|draft| (draft.config(), generation(spec, plan, draft)));
            std::iter::once((model.config(), work))
                .chain(draft)
                .collect()
        }
        Plan::Encoder(plan) => {
            let longest = plan.model().longest_text();
            let work = InferenceWork::encoding(longest, Embedder::<B>::PASS_TOKENS);
            vec![(plan.model().config(), work)]
        }
    });
    works.collect()
}

/// The memory of `memory` bytes that models share which are not followed, and their places in it; `None` for runs that are
/// followed, which stay loaded.
///
/// # Errors
/// A model does not fit into the available memory, or the followed runs do not.
pub fn places(
    planned: &[(&ModelSpec, &Plan<'_>)],
    works: &[Vec<Work<'_>>],
    memory: ByteSize,
    guard: MemoryGuard,
) -> Result<(Arc<Residency>, Vec<Option<Place>>), CliError> {
    let planned = || planned.iter().map(|(spec, _)| *spec).zip(works);
    let followed = planned().filter(|(spec, _)| spec.follows);
    let followed: Vec<Work<'_>> = followed.flat_map(|(_, works)| works.clone()).collect();
    for (_, works) in planned().filter(|(spec, _)| !spec.follows) {
        let together: Vec<Work<'_>> = followed.iter().chain(works).copied().collect();
        check(&together, guard)?;
    }
    let residency = Residency::new(memory.as_u64().saturating_sub(bytes(&followed, guard)));
    let place = |(spec, works): (&ModelSpec, &Vec<Work<'_>>)| {
        (!spec.follows).then(|| residency.add(bytes(works, guard)))
    };
    let places = planned().map(place).collect();
    Ok((residency, places))
}

/// The predicted memory of engines, without that of the program.
pub fn bytes(works: &[Work<'_>], guard: MemoryGuard) -> u64 {
    guard.inference("serving", works).on_device()
}

/// Checks that the weights, KV caches and forward passes of the models fit into memory together.
pub fn check(works: &[Work<'_>], guard: MemoryGuard) -> Result<(), CliError> {
    let one = |context: usize| move |work: InferenceWork| work.with_one_slot(context);
    let short_option = format!("--slots 1 --context {SHORT_CONTEXT}");
    guard.check_inference(
        "serving",
        works,
        &[
            ("--slots 1", &one(usize::MAX)),
            (&short_option, &one(SHORT_CONTEXT)),
        ],
    )
}

/// Context length that the hint suggests if the model's full context does not fit into memory.
const SHORT_CONTEXT: usize = 1024;
