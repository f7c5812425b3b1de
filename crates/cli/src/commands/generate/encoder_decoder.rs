//! `emberlm generate` with an encoder–decoder: the prompt is the source, and the target is shown.

use emberlm_checkpoint::{Model, ModelKind};
use emberlm_model::WeightFormat;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::fit::InferenceWork;

use super::method::{Method, ModelDefaults};
use super::{Generate, GenerateArgs, Prompt};
use crate::cache_arg;
use crate::error::CliError;

/// Generates the target of a source.
pub fn run(args: &GenerateArgs) -> Result<(), CliError> {
    refuse_unsupported(args)?;
    let kind = ModelKind::EncoderDecoder;
    cache_arg::check_kind(args.cache.cache, kind, &args.model)?;
    let backend = args.backend.choose()?;
    let model = args.adapter.open(&args.model)?.of_kind(kind)?;
    let tokenizer = model.tokenizer()?;
    let tokenizer = tokenizer.as_ref();
    let source = source(args, &model, tokenizer)?;
    let defaults = ModelDefaults {
        tokenizer,
        vocab_size: model.config().vocab_size(),
        stop_tokens: model.stop_tokens(tokenizer),
        sampling: crate::model::sampling_defaults(&model),
        room: usize::MAX,
    };
    let method = Method::new(args, defaults)?;
    let (targets, tokens) = method.size();
    let work = InferenceWork::targets(targets, tokens, source.len());
    let guard = args.memory.guard(backend);
    guard.check_inference("generating", &[(model.config(), work)], &[])?;
    backend.run(Generate {
        args,
        model: &model,
        draft: None,
        tokenizer,
        prompt: Prompt::silent(source),
        method,
    })?
}

/// Returns an error for an option that has no effect on an encoder–decoder.
fn refuse_unsupported(args: &GenerateArgs) -> Result<(), CliError> {
    let packed = args
        .weights
        .weights
        .is_some_and(|format| format != WeightFormat::F32);
    let given = [
        ("--draft", args.draft.is_some()),
        ("--weights", packed),
        ("--json-schema", args.choice.json_schema.is_some()),
        ("--regex", args.choice.regex.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let message = format!("{option} is not supported with an encoder–decoder");
            Err(CliError::new(message).hint(format!("leave {option} out")))
        }
        None => Ok(()),
    }
}

/// The token ids of the source.
fn source(
    args: &GenerateArgs,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<Vec<u32>, CliError> {
    if let Some(tokens) = &args.tokens {
        return Ok(tokens.clone());
    }
    let Some(text) = &args.prompt else {
        let path = args.model.display();
        let message = format!("{path} is an encoder–decoder, which needs a source text");
        return Err(CliError::new(message).hint("give one: --prompt TEXT"));
    };
    let tokenizer = crate::model::needed(tokenizer, &args.model)?;
    Ok(model.prompt(tokenizer, text)?)
}
